// Wavelet transforms.

// One level along one axis over the corner ROWS x COLUMNS of each field; the rest is copied.
template <class X, class Y, int V, u32 H, u32 W, u32 C, u32 ROWS, u32 COLUMNS, bool ALONG_WIDTH, bool INVERSE, int TAPS, u64 COUNT>
DEVICE void wavelet(const X* x, Y* y, const float* taps) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    const u32 c = (u32)(at % (C / V)) * V;
    const u64 pixel = at / (C / V);
    const u32 i = (u32)(pixel / W % H), j = (u32)(pixel % W);
    const X* field = x + pixel / W / H * H * W * C + c;
    float sum[V] = {};
    if (i >= ROWS || j >= COLUMNS) {
        load<V>(field + ((u64)i * W + j) * C, sum);
    } else {
        constexpr u32 LENGTH = ALONG_WIDTH ? COLUMNS : ROWS, HALF = LENGTH / 2;
        const u32 place = ALONG_WIDTH ? j : i;
        for (int k = 0; k < TAPS; ++k) {
            const float tap = taps[k], mirrored = taps[TAPS - 1 - k], detail = k % 2 == 0 ? mirrored : -mirrored;
            if (INVERSE) {
                const u32 q = (place + TAPS * LENGTH - k) % LENGTH;
                if (q % 2 != 0) continue;
                float low[V], high[V];
                const u32 a = q / 2, b = HALF + q / 2;
                load<V>(field + (ALONG_WIDTH ? (u64)i * W + a : (u64)a * W + j) * C, low);
                load<V>(field + (ALONG_WIDTH ? (u64)i * W + b : (u64)b * W + j) * C, high);
#pragma unroll
                for (int n = 0; n < V; ++n) sum[n] += tap * low[n] + detail * high[n];
            } else {
                const u32 pair = place < HALF ? place : place - HALF, point = (2 * pair + k) % LENGTH;
                const float weight = place < HALF ? tap : detail;
                float value[V];
                load<V>(field + (ALONG_WIDTH ? (u64)i * W + point : (u64)point * W + j) * C, value);
#pragma unroll
                for (int n = 0; n < V; ++n) sum[n] += weight * value[n];
            }
        }
    }
    store<V>(y + at * V, sum);
}
