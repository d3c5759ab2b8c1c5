// Attention on tensor cores for bf16 and heads of a multiple of 16. A warp has 16 rows (queries, or keys in the last
// kernel); the other side passes through shared memory, SPAN rows at a time.

#define SPAN 64
#define WARPS 4

template <u32 N, int HD> struct Tile {
    static constexpr int PITCH = HD + 8; // elements between rows: rows fall into different banks
    static constexpr int STEPS = HD / 16, BLOCKS = HD / 8, COLUMNS = SPAN / 8;
    static constexpr bool WHOLE = N % SPAN == 0;
};

// SPAN rows from `first` on into shared memory, zeros past the end.
template <u32 N, int HD> DEVICE void stage_rows(const bf16* from, u32 pitch, u32 first, bf16* to) {
    for (int i = threadIdx.x; i < SPAN * (HD / 8); i += WARPS * 32) {
        const u32 row = i / (HD / 8), part = i % (HD / 8) * 8;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (Tile<N, HD>::WHOLE || first + row < N) value = *reinterpret_cast<const uint4*>(from + (size_t)(first + row) * pitch + part);
        *reinterpret_cast<uint4*>(to + row * Tile<N, HD>::PITCH + part) = value;
    }
}

// This warp's 16 rows as left factors.
template <u32 N, int HD> DEVICE void left_rows(const bf16* from, u32 pitch, u32 first, u32 (&a)[HD / 16][4]) {
    const u32 lane = threadIdx.x % 32, row = first + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int s = 0; s < HD / 16; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 r = row + (i % 2) * 8, c = s * 16 + column + (i / 2) * 8;
            a[s][i] = Tile<N, HD>::WHOLE || r < N ? *reinterpret_cast<const u32*>(from + (size_t)r * pitch + c) : 0u;
        }
    }
}

// out = left rows^T for SPAN rows in shared memory.
template <u32 N, int HD> DEVICE void products(const u32 (&a)[HD / 16][4], const bf16* rows, float (&out)[SPAN / 8][4]) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < SPAN / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] = 0.0f;
        const bf16* at = rows + (n * 8 + lane % 8) * Tile<N, HD>::PITCH + lane / 8 * 8;
#pragma unroll
        for (int s = 0; s + 1 < HD / 16; s += 2) {
            u32 b[4];
            load_four(b[0], b[1], b[2], b[3], at + s * 16);
            multiply_add(out[n], a[s], b[0], b[1]);
            multiply_add(out[n], a[s + 1], b[2], b[3]);
        }
        if (HD / 16 % 2 == 1) {
            constexpr int LAST = HD / 16 - 1;
            u32 b[2];
            load_two(b[0], b[1], rows + (n * 8 + lane % 8) * Tile<N, HD>::PITCH + LAST * 16 + lane / 8 % 2 * 8);
            multiply_add(out[n], a[LAST], b[0], b[1]);
        }
    }
}

// sum += weights rows for SPAN rows in shared memory.
template <u32 N, int HD> DEVICE void accumulate(const float (&weights)[SPAN / 8][4], const bf16* rows, float (&sum)[HD / 8][4]) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < SPAN / 16; ++k) {
        const u32 a[4] = {round_pair(weights[2 * k][0], weights[2 * k][1]), round_pair(weights[2 * k][2], weights[2 * k][3]),
            round_pair(weights[2 * k + 1][0], weights[2 * k + 1][1]), round_pair(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < HD / 8; n += 2) {
            u32 b[4];
            load_four_turned(b[0], b[1], b[2], b[3], rows + (k * 16 + lane % 16) * Tile<N, HD>::PITCH + (n + lane / 16) * 8);
            multiply_add(sum[n], a, b[0], b[1]);
            multiply_add(sum[n + 1], a, b[2], b[3]);
        }
    }
}

// Writes this warp's 16 rows times factors.
template <u32 N, int HD> DEVICE void write_rows(bf16* to, u32 pitch, u32 first, const float (&sum)[HD / 8][4], float upper, float lower) {
    const u32 lane = threadIdx.x % 32, row = first + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < HD / 8; ++n) {
        if (Tile<N, HD>::WHOLE || row < N)
            *reinterpret_cast<u32*>(to + (size_t)row * pitch + n * 8 + column) = round_pair(sum[n][0] * upper, sum[n][1] * upper);
        if (Tile<N, HD>::WHOLE || row + 8 < N)
            *reinterpret_cast<u32*>(to + (size_t)(row + 8) * pitch + n * 8 + column) = round_pair(sum[n][2] * lower, sum[n][3] * lower);
    }
}

template <u32 N, u32 HEADS, int HD> DEVICE void attention_tiles(const bf16* qkv, bf16* out, float* log_sum_exp, float scale) {
    constexpr u32 D = HEADS * HD;
    typedef Tile<N, HD> K;
    __shared__ alignas(16) bf16 keys[SPAN * K::PITCH], values[SPAN * K::PITCH];
    const u32 head = blockIdx.y % HEADS, sample = blockIdx.y / HEADS, lane = threadIdx.x % 32;
    const u32 first = blockIdx.x * WARPS * 16 + threadIdx.x / 32 * 16;
    const bf16* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    u32 q[K::STEPS][4];
    left_rows<N, HD>(base, 3 * D, first, q);
    float sum[K::BLOCKS][4] = {};
    float high[2] = {-INFINITE, -INFINITE}, total[2] = {0.0f, 0.0f};
    const float factor = scale * LOG2E;
    for (u32 start = 0; start < N; start += SPAN) {
        __syncthreads();
        stage_rows<N, HD>(base + D, 3 * D, start, keys);
        stage_rows<N, HD>(base + 2 * D, 3 * D, start, values);
        __syncthreads();
        float s[SPAN / 8][4];
        products<N, HD>(q, keys, s);
        float peak[2] = {high[0], high[1]};
#pragma unroll
        for (int n = 0; n < SPAN / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (!K::WHOLE && start + n * 8 + lane % 4 * 2 + i % 2 >= N) s[n][i] = -INFINITE;
                peak[i / 2] = fmaxf(peak[i / 2], s[n][i]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            peak[r] = quad_max(peak[r]);
            const float shrink = power_of_two((high[r] - peak[r]) * factor);
            high[r] = peak[r];
            total[r] *= shrink;
#pragma unroll
            for (int n = 0; n < K::BLOCKS; ++n) {
                sum[n][2 * r] *= shrink;
                sum[n][2 * r + 1] *= shrink;
            }
        }
#pragma unroll
        for (int n = 0; n < SPAN / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                s[n][i] = power_of_two((s[n][i] - high[i / 2]) * factor);
                total[i / 2] += s[n][i];
            }
        }
        accumulate<N, HD>(s, values, sum);
    }
    total[0] = quad_sum(total[0]);
    total[1] = quad_sum(total[1]);
    write_rows<N, HD>(out + (size_t)sample * N * D + head * HD, D, first, sum, 1.0f / total[0], 1.0f / total[1]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const u32 row = first + lane / 4 + 8 * r;
        if (lane % 4 == 0 && row < N) log_sum_exp[(size_t)blockIdx.y * N + row] = high[r] * scale + __logf(total[r]);
    }
}

template <u32 N, u32 HEADS, int HD>
DEVICE void attention_queries_tiles(const bf16* qkv, const bf16* out, const float* log_sum_exp, const bf16* dout, bf16* dqkv, float* inner, float scale) {
    constexpr u32 D = HEADS * HD;
    typedef Tile<N, HD> K;
    __shared__ alignas(16) bf16 keys[SPAN * K::PITCH], values[SPAN * K::PITCH];
    const u32 head = blockIdx.y % HEADS, sample = blockIdx.y / HEADS, lane = threadIdx.x % 32;
    const u32 first = blockIdx.x * WARPS * 16 + threadIdx.x / 32 * 16;
    const bf16* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    const size_t rows = (size_t)sample * N * D + head * HD;
    u32 q[K::STEPS][4], g[K::STEPS][4];
    left_rows<N, HD>(base, 3 * D, first, q);
    left_rows<N, HD>(dout + rows, D, first, g);
    float delta[2] = {0.0f, 0.0f}, peak[2] = {0.0f, 0.0f};
    {
        u32 o[K::STEPS][4];
        left_rows<N, HD>(out + rows, D, first, o);
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                delta[i % 2] += __uint_as_float(o[s][i] << 16) * __uint_as_float(g[s][i] << 16);
                delta[i % 2] += __uint_as_float(o[s][i] & 0xffff0000u) * __uint_as_float(g[s][i] & 0xffff0000u);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const u32 row = first + lane / 4 + 8 * r;
        delta[r] = quad_sum(delta[r]);
        if (row < N) {
            peak[r] = log_sum_exp[(size_t)blockIdx.y * N + row] * LOG2E;
            if (lane % 4 == 0) inner[(size_t)blockIdx.y * N + row] = delta[r];
        }
    }
    const float factor = scale * LOG2E;
    float dq[K::BLOCKS][4] = {};
    for (u32 start = 0; start < N; start += SPAN) {
        __syncthreads();
        stage_rows<N, HD>(base + D, 3 * D, start, keys);
        stage_rows<N, HD>(base + 2 * D, 3 * D, start, values);
        __syncthreads();
        float s[SPAN / 8][4], d[SPAN / 8][4];
        products<N, HD>(q, keys, s);
        products<N, HD>(g, values, d);
#pragma unroll
        for (int n = 0; n < SPAN / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float p = power_of_two(s[n][i] * factor - peak[i / 2]);
                if (!K::WHOLE && start + n * 8 + lane % 4 * 2 + i % 2 >= N) p = 0.0f;
                s[n][i] = p * (d[n][i] - delta[i / 2]);
            }
        }
        accumulate<N, HD>(s, keys, dq);
    }
    write_rows<N, HD>(dqkv + (size_t)sample * N * 3 * D + head * HD, 3 * D, first, dq, scale, scale);
}

template <u32 N, u32 HEADS, int HD>
DEVICE void attention_keys_tiles(const bf16* qkv, const float* log_sum_exp, const bf16* dout, bf16* dqkv, const float* inner, float scale) {
    constexpr u32 D = HEADS * HD;
    typedef Tile<N, HD> K;
    __shared__ alignas(16) bf16 queries[SPAN * K::PITCH], slopes[SPAN * K::PITCH];
    __shared__ float peaks[SPAN], deltas[SPAN];
    const u32 head = blockIdx.y % HEADS, sample = blockIdx.y / HEADS, lane = threadIdx.x % 32;
    const u32 first = blockIdx.x * WARPS * 16 + threadIdx.x / 32 * 16;
    const bf16* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    u32 k[K::STEPS][4], v[K::STEPS][4];
    left_rows<N, HD>(base + D, 3 * D, first, k);
    left_rows<N, HD>(base + 2 * D, 3 * D, first, v);
    const float factor = scale * LOG2E;
    float dk[K::BLOCKS][4] = {}, dv[K::BLOCKS][4] = {};
    for (u32 start = 0; start < N; start += SPAN) {
        __syncthreads();
        stage_rows<N, HD>(base, 3 * D, start, queries);
        stage_rows<N, HD>(dout + (size_t)sample * N * D + head * HD, D, start, slopes);
        for (int i = threadIdx.x; i < SPAN; i += WARPS * 32) {
            const bool inside = K::WHOLE || start + i < N;
            peaks[i] = inside ? log_sum_exp[(size_t)blockIdx.y * N + start + i] * LOG2E : 0.0f;
            deltas[i] = inside ? inner[(size_t)blockIdx.y * N + start + i] : 0.0f;
        }
        __syncthreads();
        float s[SPAN / 8][4], d[SPAN / 8][4];
        products<N, HD>(k, queries, s);
        products<N, HD>(v, slopes, d);
#pragma unroll
        for (int n = 0; n < SPAN / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 column = n * 8 + lane % 4 * 2 + i % 2;
                float p = power_of_two(s[n][i] * factor - peaks[column]);
                if (!K::WHOLE && start + column >= N) p = 0.0f;
                s[n][i] = p;
                d[n][i] = p * (d[n][i] - deltas[column]);
            }
        }
        accumulate<N, HD>(s, slopes, dv);
        accumulate<N, HD>(d, queries, dk);
    }
    bf16* to = dqkv + (size_t)sample * N * 3 * D + head * HD;
    write_rows<N, HD>(to + D, 3 * D, first, dk, scale, scale);
    write_rows<N, HD>(to + 2 * D, 3 * D, first, dv, 1.0f, 1.0f);
}
