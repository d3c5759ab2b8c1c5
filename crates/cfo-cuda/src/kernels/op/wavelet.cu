// Wavelet transforms.

// One level along one axis over the corner ROWS x COLUMNS of each field; the rest is copied. With ENDS the line is not
// periodic: the last average and the first detail use the truncated filters of the ends, whose weights follow the taps.
template <class X, class Y, int V, u32 H, u32 W, u32 C, u32 ROWS, u32 COLUMNS, bool ALONG_WIDTH, bool INVERSE, bool ENDS, int TAPS, u64 COUNT>
DEVICE void wavelet(const X* x, Y* y, const float* taps) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    const u32 c = (u32)(at % (C / V)) * V;
    const u64 pixel = at / (C / V);
    const u32 i = (u32)(pixel / W % H), j = (u32)(pixel % W);
    const X* field = x + pixel / W / H * H * W * C + c;
    float sum[V] = {};
    const auto add = [&](u32 place, float weight) {
        float value[V];
        load<V>(field + (ALONG_WIDTH ? (u64)i * W + place : (u64)place * W + j) * C, value);
#pragma unroll
        for (int n = 0; n < V; ++n) sum[n] += weight * value[n];
    };
    if (i >= ROWS || j >= COLUMNS) {
        load<V>(field + ((u64)i * W + j) * C, sum);
    } else {
        constexpr u32 LENGTH = ALONG_WIDTH ? COLUMNS : ROWS, HALF = LENGTH / 2;
        const u32 place = ALONG_WIDTH ? j : i;
        const bool average = place < HALF;
        const u32 pair = average ? place : place - HALF - (ENDS ? 1 : 0);
        if (INVERSE && ENDS && place < 2) add(HALF, taps[TAPS + 2 + place]);
        if (!INVERSE && ENDS && (place == HALF - 1 || place == HALF)) {
            for (u32 k = 0; k < 2; ++k) add(average ? LENGTH - 2 + k : k, taps[TAPS + (average ? 0 : 2) + k]);
        } else {
            for (int k = 0; k < TAPS; ++k) {
                const float tap = taps[k], mirrored = taps[TAPS - 1 - k], detail = k % 2 == 0 ? mirrored : -mirrored;
                if (!INVERSE) {
                    add((2 * pair + k) % LENGTH, average ? tap : detail);
                } else if (ENDS) {
                    if (place < (u32)k || (place - k) % 2 != 0) continue;
                    const u32 from = (place - k) / 2;
                    if (from + 1 == HALF) {
                        add(from, taps[TAPS + k]);
                    } else {
                        add(from, tap);
                        add(HALF + from + 1, detail);
                    }
                } else {
                    const u32 q = (place + TAPS * LENGTH - k) % LENGTH;
                    if (q % 2 != 0) continue;
                    add(q / 2, tap);
                    add(HALF + q / 2, detail);
                }
            }
        }
    }
    store<V>(y + at * V, sum);
}
