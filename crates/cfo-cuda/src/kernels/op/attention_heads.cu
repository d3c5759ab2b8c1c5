// Attention of whole heads: a block holds queries, keys and values of one head in shared memory. Rows are HD elements
// apart; their parts of 8 are permuted so that 8 neighbouring rows are in different banks.

template <int HD> DEVICE u32 place(u32 row, u32 part) {
    constexpr u32 PARTS = HD / 8;
    return row * HD + (part ^ (PARTS % 8 == 0 ? row % 8 : PARTS % 4 == 0 ? row / 2 % 4 : row / 4 % 2)) * 8;
}

// Writes 8 x 8 blocks to shared memory in the layout that load_four reads.
DEVICE void store_four(bf16* at, const u32 (&a)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"((u32)__cvta_generic_to_shared(at)), "r"(a[0]), "r"(a[1]),
                 "r"(a[2]), "r"(a[3])
                 : "memory");
#else
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const u64 row = __shfl_sync(0xffffffffu, (u64)at, i * 8 + lane / 4);
        reinterpret_cast<u32*>(row)[lane % 4] = a[i];
    }
#endif
}

// Rows first .. end of a matrix into shared memory.
template <int HD, int THREADS> DEVICE void fetch(const bf16* from, u32 pitch, u32 first, u32 end, bf16* to) {
    for (u32 i = threadIdx.x + first * (HD / 8); i < end * (HD / 8); i += THREADS) {
        const u32 row = i / (HD / 8), part = i % (HD / 8);
        copy_async(to + place<HD>(row, part), from + (size_t)row * pitch + part * 8);
    }
}

template <int HD> DEVICE void clear_rows(u32 first, u32 end, bf16* to) {
    for (u32 i = threadIdx.x + first * (HD / 8); i < end * (HD / 8); i += blockDim.x) *reinterpret_cast<uint4*>(to + i * 8) = make_uint4(0, 0, 0, 0);
}

// 32 rows as left factors.
template <int HD> DEVICE void left_factors(const bf16* rows, u32 first, u32 (&a)[2][HD / 16][4]) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int s = 0; s < HD / 16; ++s)
            load_four(a[m][s][0], a[m][s][1], a[m][s][2], a[m][s][3], rows + place<HD>(first + m * 16 + lane % 16, s * 2 + lane / 16));
    }
}

// out = left rows^T for 16 rows in shared memory from `first` on.
template <int HD> DEVICE void products32(const u32 (&a)[2][HD / 16][4], const bf16* rows, u32 first, float (&out)[2][2][4]) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll
    for (int s = 0; s < HD / 16; ++s) {
        u32 b[4];
        load_four(b[0], b[1], b[2], b[3], rows + place<HD>(first + lane % 8 + lane / 16 * 8, s * 2 + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            multiply_add(out[m][0], a[m][s], b[0], b[1]);
            multiply_add(out[m][1], a[m][s], b[2], b[3]);
        }
    }
}

// sum += weights rows for 16 rows in shared memory from `first` on.
template <int HD> DEVICE void accumulate32(const u32 (&a)[2][4], const bf16* rows, u32 first, float (&sum)[2][HD / 8][4]) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < HD / 8; n += 2) {
        u32 b[4];
        load_four_turned(b[0], b[1], b[2], b[3], rows + place<HD>(first + lane % 16, n + lane / 16));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            multiply_add(sum[m][n], a[m], b[0], b[1]);
            multiply_add(sum[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

// Writes this warp's 32 rows times a factor, through the warp's part of shared memory.
template <int HD> DEVICE void write_whole(const float (&sum)[2][HD / 8][4], const float (&factor)[2][2], bf16* own, bf16* to, u32 pitch, u32 rows) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < HD / 8; n += 2) {
            const u32 a[4] = {round_pair(sum[m][n][0] * factor[m][0], sum[m][n][1] * factor[m][0]),
                round_pair(sum[m][n][2] * factor[m][1], sum[m][n][3] * factor[m][1]),
                round_pair(sum[m][n + 1][0] * factor[m][0], sum[m][n + 1][1] * factor[m][0]),
                round_pair(sum[m][n + 1][2] * factor[m][1], sum[m][n + 1][3] * factor[m][1])};
            store_four(own + place<HD>(m * 16 + lane % 16, n + lane / 16), a);
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < HD / 8; ++i) {
        const u32 at = i * 32 + lane, row = at / (HD / 8), part = at % (HD / 8);
        if (row < rows) *reinterpret_cast<uint4*>(to + (size_t)row * pitch + part * 8) = *reinterpret_cast<const uint4*>(own + place<HD>(row, part));
    }
    __syncwarp();
}

DEVICE bf16* shared_memory() {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<bf16*>(memory);
}

// Forward: a warp has 32 queries; keys are processed KEYS at a time.
template <u32 N, u32 HEADS, int HD> DEVICE void attention_heads(const bf16* qkv, bf16* out, float* log_sum_exp, float scale) {
    constexpr u32 D = HEADS * HD, KEYS = 32, ROWS = (N + KEYS - 1) / KEYS * KEYS, THREADS = ROWS;
    bf16 *queries = shared_memory(), *keys = queries + ROWS * HD, *values = keys + ROWS * HD;
    const u32 head = blockIdx.x % HEADS, sample = blockIdx.x / HEADS, lane = threadIdx.x % 32, first = threadIdx.x / 32 * 32;
    const bf16* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    fetch<HD, THREADS>(base, 3 * D, 0, N, queries);
    fetch<HD, THREADS>(base + D, 3 * D, 0, N, keys);
    commit_copies();
    fetch<HD, THREADS>(base + 2 * D, 3 * D, 0, N, values);
    commit_copies();
    clear_rows<HD>(N, ROWS, queries);
    clear_rows<HD>(N, ROWS, keys);
    clear_rows<HD>(N, ROWS, values);
    wait_copies<1>();
    __syncthreads();
    u32 q[2][HD / 16][4];
    left_factors<HD>(queries, first, q);
    float sum[2][HD / 8][4] = {};
    float high[2][2] = {{-INFINITE, -INFINITE}, {-INFINITE, -INFINITE}}, total[2][2] = {};
    const float factor = scale * LOG2E;
#pragma unroll 1
    for (u32 start = 0; start < ROWS; start += KEYS) {
        float s[KEYS / 16][2][2][4];
#pragma unroll
        for (int k = 0; k < KEYS / 16; ++k) products32<HD>(q, keys, start + k * 16, s[k]);
        float peak[2][2] = {{high[0][0], high[0][1]}, {high[1][0], high[1][1]}};
#pragma unroll
        for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int m = i / 8, n = i / 4 % 2, r = i % 4 / 2;
                if (N != ROWS && start + k * 16 + n * 8 + lane % 4 * 2 + i % 2 >= N) s[k][m][n][i % 4] = -INFINITE;
                peak[m][r] = fmaxf(peak[m][r], s[k][m][n][i % 4]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int m = i / 2, r = i % 2;
            peak[m][r] = quad_max(peak[m][r]);
            const float shrink = power_of_two((high[m][r] - peak[m][r]) * factor);
            high[m][r] = peak[m][r];
            total[m][r] *= shrink;
#pragma unroll
            for (int n = 0; n < HD / 8; ++n) {
                sum[m][n][2 * r] *= shrink;
                sum[m][n][2 * r + 1] *= shrink;
            }
            peak[m][r] *= factor;
        }
        if (start == 0) {
            wait_copies<0>();
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < KEYS / 16; ++k) {
            u32 p[2][4];
#pragma unroll
            for (int m = 0; m < 2; ++m) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float& x = s[k][m][i / 4][i % 4];
                    x = power_of_two(x * factor - peak[m][i % 4 / 2]);
                    total[m][i % 4 / 2] += x;
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) p[m][i] = round_pair(s[k][m][i / 2][i % 2 * 2], s[k][m][i / 2][i % 2 * 2 + 1]);
            }
            accumulate32<HD>(p, values, start + k * 16, sum);
        }
    }
    float by[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int m = i / 2, r = i % 2;
        const u32 row = first + m * 16 + lane / 4 + 8 * r;
        total[m][r] = quad_sum(total[m][r]);
        by[m][r] = 1.0f / total[m][r];
        if (lane % 4 == 0 && row < N) log_sum_exp[(size_t)blockIdx.x * N + row] = high[m][r] * scale + __logf(total[m][r]);
    }
    const u32 rows = first >= N ? 0 : N - first;
    write_whole<HD>(sum, by, queries + first * HD, out + ((size_t)sample * N + first) * D + head * HD, D, rows);
}

// Backward: a warp has 32 keys and keeps the cotangents of keys and values in registers. Queries are processed STEP at
// a time. The cotangents of the scores are written to shared memory, from which all warps sum those of the queries.
// While a block processes one head, the next one is loaded over the queries that are no longer needed.
template <u32 N, u32 HEADS, int HD, u32 STEP>
DEVICE void attention_heads_backward(const bf16* qkv, const bf16* out, const float* log_sum_exp, const bf16* dout, bf16* dqkv, float scale, u32 units) {
    constexpr u32 D = HEADS * HD, ROWS = (N + STEP - 1) / STEP * STEP, THREADS = ROWS;
    constexpr u32 SIZE = ROWS * HD, SPLIT = 64 / STEP;
    bf16 *queries = shared_memory(), *slopes = queries + SIZE, *values = slopes + SIZE, *results = values + SIZE, *keys = results + SIZE;
    bf16* scores = keys + 2 * SIZE;
    float *peaks = reinterpret_cast<float*>(scores + 2 * ROWS * STEP), *deltas = peaks + ROWS;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * 32;
    const float factor = scale * LOG2E;
    auto qkv_of = [&](u32 unit) { return qkv + (size_t)(unit / HEADS) * N * 3 * D + unit % HEADS * HD; };
    auto row_of = [&](u32 unit) { return (size_t)(unit / HEADS) * N * D + unit % HEADS * HD; };
    auto fetch_queries = [&](u32 unit, u32 from) {
        const u32 end = from + STEP < N ? from + STEP : N;
        fetch<HD, THREADS>(qkv_of(unit), 3 * D, from, end, queries);
        fetch<HD, THREADS>(dout + row_of(unit), D, from, end, slopes);
        fetch<HD, THREADS>(out + row_of(unit), D, from, end, results);
    };
    u32 unit = blockIdx.x;
    if (N != ROWS) {
        for (u32 i = 0; i < 6; ++i) clear_rows<HD>(N, ROWS, queries + i * SIZE);
    }
    fetch<HD, THREADS>(qkv_of(unit) + D, 3 * D, 0, N, keys);
    fetch<HD, THREADS>(qkv_of(unit) + 2 * D, 3 * D, 0, N, values);
    for (u32 start = 0; start < N; start += STEP) fetch_queries(unit, start);
    commit_copies();
    float peak = threadIdx.x < N ? log_sum_exp[(size_t)unit * N + threadIdx.x] : 1e30f;
    for (u32 turn = 0; unit < units; ++turn) {
        const u32 next = unit + gridDim.x;
        bf16 *own_keys = keys + turn % 2 * SIZE, *next_keys = keys + (turn + 1) % 2 * SIZE;
        wait_copies<0>();
        __syncthreads();
        {
            float delta = 0.0f;
#pragma unroll
            for (int part = 0; part < HD / 8; ++part) {
                float a[8], b[8];
                load<8>(slopes + place<HD>(threadIdx.x, part), a);
                load<8>(results + place<HD>(threadIdx.x, part), b);
#pragma unroll
                for (int i = 0; i < 8; ++i) delta += a[i] * b[i];
            }
            deltas[threadIdx.x] = delta;
            peaks[threadIdx.x] = peak * LOG2E;
        }
        u32 k[2][HD / 16][4], v[2][HD / 16][4];
        left_factors<HD>(own_keys, first, k);
        left_factors<HD>(values, first, v);
        float dk[2][HD / 8][4] = {}, dv[2][HD / 8][4] = {};
        __syncthreads();
        if (next < units) {
            fetch<HD, THREADS>(qkv_of(next) + D, 3 * D, 0, N, next_keys);
            fetch<HD, THREADS>(qkv_of(next) + 2 * D, 3 * D, 0, N, values);
            if (threadIdx.x < N) peak = log_sum_exp[(size_t)next * N + threadIdx.x];
        }
#pragma unroll 1
        for (u32 step = 0; step < ROWS / STEP; ++step) {
            bf16* ds = scores + step % 2 * ROWS * STEP;
#pragma unroll 2
            for (int part = 0; part < STEP / 16; ++part) {
                const u32 start = step * STEP + part * 16;
                float s[2][2][4], d[2][2][4];
                products32<HD>(k, queries, start, s);
                products32<HD>(v, slopes, start, d);
                u32 p[2][4], g[2][4];
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    const float2 high = *reinterpret_cast<const float2*>(peaks + start + n * 8 + lane % 4 * 2);
                    const float2 delta = *reinterpret_cast<const float2*>(deltas + start + n * 8 + lane % 4 * 2);
#pragma unroll
                    for (int m = 0; m < 2; ++m) {
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            float x = power_of_two(s[m][n][i] * factor - (i % 2 ? high.y : high.x));
                            if (N != ROWS && first + m * 16 + i / 2 * 8 + lane / 4 >= N) x = 0.0f;
                            s[m][n][i] = x;
                            d[m][n][i] = x * (d[m][n][i] - (i % 2 ? delta.y : delta.x));
                        }
                        p[m][n * 2] = round_pair(s[m][n][0], s[m][n][1]);
                        p[m][n * 2 + 1] = round_pair(s[m][n][2], s[m][n][3]);
                        g[m][n * 2] = round_pair(d[m][n][0], d[m][n][1]);
                        g[m][n * 2 + 1] = round_pair(d[m][n][2], d[m][n][3]);
                    }
                }
#pragma unroll
                for (int m = 0; m < 2; ++m) store_four(ds + place<STEP>(first + m * 16 + lane % 16, part * 2 + lane / 16), g[m]);
                accumulate32<HD>(p, slopes, start, dv);
                accumulate32<HD>(g, queries, start, dk);
            }
            __syncthreads();
            if (next < units) fetch_queries(next, step * STEP);
            // Queries of this step: 16 rows and a part of the columns at a time.
            for (u32 job = warp; job < STEP / 16 * SPLIT; job += ROWS / 32) {
                constexpr int WIDE = HD / 8 / SPLIT;
                const u32 row = job / SPLIT * 16, column = job % SPLIT * WIDE;
                float dq[WIDE][4] = {};
#pragma unroll 4
                for (u32 key = 0; key < ROWS; key += 16) {
                    u32 a[4];
                    load_four_turned(a[0], a[1], a[2], a[3], ds + place<STEP>(key + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2));
#pragma unroll
                    for (int n = 0; n + 1 < WIDE; n += 2) {
                        u32 b[4];
                        load_four_turned(b[0], b[1], b[2], b[3], own_keys + place<HD>(key + lane % 16, column + n + lane / 16));
                        multiply_add(dq[n], a, b[0], b[1]);
                        multiply_add(dq[n + 1], a, b[2], b[3]);
                    }
                    if (WIDE % 2 == 1) {
                        u32 b[2];
                        load_two_turned(b[0], b[1], own_keys + place<HD>(key + lane % 16, column + WIDE - 1));
                        multiply_add(dq[WIDE - 1], a, b[0], b[1]);
                    }
                }
                bf16* to = dqkv + (size_t)(unit / HEADS) * N * 3 * D + unit % HEADS * HD + column * 8 + lane % 4 * 2;
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const u32 query = step * STEP + row + lane / 4 + r * 8;
                    if (N != ROWS && query >= N) continue;
#pragma unroll
                    for (int n = 0; n < WIDE; ++n)
                        *reinterpret_cast<u32*>(to + (size_t)query * 3 * D + n * 8) = round_pair(dq[n][2 * r] * scale, dq[n][2 * r + 1] * scale);
                }
            }
        }
        commit_copies();
        __syncthreads();
        bf16 *own = scores + warp * 32 * HD, *to = dqkv + (size_t)(unit / HEADS) * N * 3 * D + unit % HEADS * HD + (size_t)first * 3 * D;
        const u32 rows = first >= N ? 0 : N - first;
        const float plain[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}}, scaled[2][2] = {{scale, scale}, {scale, scale}};
        write_whole<HD>(dk, scaled, own, to + D, 3 * D, rows);
        write_whole<HD>(dv, plain, own, to + 2 * D, 3 * D, rows);
        unit = next;
    }
}
