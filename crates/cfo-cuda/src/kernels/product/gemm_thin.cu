// Products with a short side. Memory limits their speed, so they read the long side once.

// y [ROWS, N] = a [ROWS, K] b + bias with N small; b (k, n) is at k BR + n BC. LANES threads share a row, V neighbours
// each; a block iterates over the rows.
template <class A, class B, class S, class Y, int V, u32 ROWS, u32 K, int N, int LANES, u32 AR, u32 BR, u32 BC, u32 YR, bool BIAS>
DEVICE void thin_columns(const A* a, const B* b, const S* bias, Y* y) {
    constexpr int STEPS = (K + V * LANES - 1) / (V * LANES);
    constexpr u32 EACH = 256 / LANES;
    const u32 lane = threadIdx.x % LANES;
    float w[STEPS][V][N];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const u32 k = (s * LANES + lane) * V + i;
#pragma unroll
            for (int n = 0; n < N; ++n) w[s][i][n] = k < K ? real(b[(size_t)k * BR + n * BC]) : 0.0f;
        }
    }
    // All threads of a warp run the same number of iterations, as the sums below need all threads.
#pragma unroll 4
    for (u32 first = blockIdx.x * EACH; first < ROWS; first += gridDim.x * EACH) {
        const u32 row = first + threadIdx.x / LANES;
        float sum[N] = {};
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const u32 k = (s * LANES + lane) * V;
            if (row < ROWS && k < K) {
                float value[V];
                load<V>(a + (size_t)row * AR + k, value);
#pragma unroll
                for (int i = 0; i < V; ++i) {
#pragma unroll
                    for (int n = 0; n < N; ++n) sum[n] += value[i] * w[s][i][n];
                }
            }
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int offset = LANES / 2; offset > 0; offset >>= 1) sum[n] += __shfl_xor_sync(0xffffffffu, sum[n], offset);
            if (lane == n % LANES && row < ROWS)
                y[(size_t)row * YR + n] = Cast<Y>::of(sum[n] + (BIAS ? real(bias[n]) : 0.0f));
        }
    }
}

// y [ROWS, N] = a b + bias with K small; a (r, k) is at r AR + k AC. A thread keeps V columns of b and iterates over
// rows.
template <class A, class B, class S, class Y, int V, u32 ROWS, int K, u32 N, u32 AR, u32 AC, u32 BR, u32 BC, u32 YR, bool BIAS>
DEVICE void thin_terms(const A* a, const B* b, const S* bias, Y* y) {
    constexpr u32 LANES = N / V, EACH = 256 / LANES;
    const u32 column = threadIdx.x % LANES * V;
    if (threadIdx.x >= LANES * EACH) return;
    float w[K][V], start[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
        start[i] = BIAS ? real(bias[column + i]) : 0.0f;
#pragma unroll
        for (int k = 0; k < K; ++k) w[k][i] = real(b[(size_t)k * BR + (size_t)(column + i) * BC]);
    }
#pragma unroll 4
    for (u32 row = blockIdx.x * EACH + threadIdx.x / LANES; row < ROWS; row += gridDim.x * EACH) {
        float sum[V];
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = start[i];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const float value = real(a[(size_t)row * AR + k * AC]);
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += value * w[k][i];
        }
        store<V>(y + (size_t)row * YR + column, sum);
    }
}

// y (w, t) = sum over rows of wide [ROWS, W] and thin [ROWS, T], T small, written to w YW + t YT. Blocks process runs
// of rows; the last to arrive adds their sums in order.
template <class A, class B, class Y, int V, u32 ROWS, u32 W, int T, u32 AR, u32 BR, u32 YW, u32 YT, u32 CHUNKS>
DEVICE void thin_gradients(const A* wide, const B* thin, Y* y, float* partial, u32* ticket) {
    constexpr u32 LANES = W / V, EACH = 256 / LANES, SPAN = (ROWS + CHUNKS - 1) / CHUNKS;
    __shared__ alignas(16) float shared[EACH * W];
    const u32 lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
    const u32 end = (blockIdx.x + 1) * SPAN < ROWS ? (blockIdx.x + 1) * SPAN : ROWS;
    float sum[T][V] = {};
    if (own < EACH) {
#pragma unroll 4
        for (u32 row = blockIdx.x * SPAN + own; row < end; row += EACH) {
            float value[V];
            load<V>(wide + (size_t)row * AR + lane * V, value);
#pragma unroll
            for (int t = 0; t < T; ++t) {
                const float factor = real(thin[(size_t)row * BR + t]);
#pragma unroll
                for (int i = 0; i < V; ++i) sum[t][i] += factor * value[i];
            }
        }
    }
#pragma unroll
    for (int t = 0; t < T; ++t) {
        __syncthreads();
        if (own < EACH) store<V>(shared + own * W + lane * V, sum[t]);
        __syncthreads();
        for (u32 i = threadIdx.x; i < W; i += 256) {
            float total = 0.0f;
#pragma unroll 8
            for (u32 r = 0; r < EACH; ++r) total += shared[r * W + i];
            if (CHUNKS == 1) y[i * YW + t * YT] = Cast<Y>::of(total);
            else partial[((size_t)blockIdx.x * T + t) * W + i] = total;
        }
    }
    if (CHUNKS == 1) return;
    if (!last_block(ticket, CHUNKS)) return;
    for (u32 i = threadIdx.x; i < T * W; i += 256) {
        float total = 0.0f;
#pragma unroll 16
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) total += __ldcg(partial + (size_t)chunk * T * W + i);
        y[i % W * YW + i / W * YT] = Cast<Y>::of(total);
    }
}

// y [ROWS, N] = m x for each x [K, N] of a batch, with a common matrix m: m (r, k) is at r MR + k MC. A block computes
// TILE columns; PARTS groups of threads share the sum (few rows) or the rows (few terms). The matrix is in shared
// memory, transposed so that a thread's next reads are contiguous.
#define TILE 64
#define PARTS 4

template <class M, u32 OUTER, u32 INNER, u32 STRIDE, u32 OR, u32 IR> DEVICE void stage_matrix(const M* m, float* to) {
    for (u32 i = threadIdx.x; i < OUTER * STRIDE; i += TILE * PARTS) {
        const u32 outer = i / STRIDE, inner = i % STRIDE;
        to[i] = inner < INNER ? real(m[(size_t)outer * OR + (size_t)inner * IR]) : 0.0f;
    }
    __syncthreads();
}

template <class M, class X, class Y, u32 ROWS, u32 K, u32 N, u32 MR, u32 MC> DEVICE void thin_rows(const M* m, const X* x, Y* y) {
    constexpr u32 STRIDE = (ROWS + 3) / 4 * 4;
    __shared__ alignas(16) float matrix[K * STRIDE];
    __shared__ float parts[PARTS - 1][ROWS][TILE];
    stage_matrix<M, K, ROWS, STRIDE, MC, MR>(m, matrix);
    const u32 lane = threadIdx.x % TILE, part = threadIdx.x / TILE, column = blockIdx.x * TILE + lane;
    const X* from = x + (size_t)blockIdx.y * K * N + column;
    float sum[STRIDE] = {};
#pragma unroll 5
    for (u32 k = part; k < K; k += PARTS) {
        const float value = real(from[(size_t)k * N]);
#pragma unroll
        for (u32 r = 0; r < STRIDE; r += 4) {
            float row[4];
            load<4>(matrix + k * STRIDE + r, row);
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[r + i] += row[i] * value;
        }
    }
    if (part > 0) {
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) parts[part - 1][r][lane] = sum[r];
    }
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int p = 0; p < PARTS - 1; ++p) sum[r] += parts[p][r][lane];
        y[((size_t)blockIdx.y * ROWS + r) * N + column] = Cast<Y>::of(sum[r]);
    }
}

template <class M, class X, class Y, u32 ROWS, u32 K, u32 N, u32 MR, u32 MC> DEVICE void thin_inputs(const M* m, const X* x, Y* y) {
    constexpr u32 STRIDE = (K + 3) / 4 * 4;
    __shared__ alignas(16) float matrix[ROWS * STRIDE];
    stage_matrix<M, ROWS, K, STRIDE, MR, MC>(m, matrix);
    const u32 lane = threadIdx.x % TILE, part = threadIdx.x / TILE, column = blockIdx.x * TILE + lane;
    float value[STRIDE];
#pragma unroll
    for (u32 k = 0; k < STRIDE; ++k) value[k] = k < K ? real(x[((size_t)blockIdx.y * K + k) * N + column]) : 0.0f;
#pragma unroll 4
    for (u32 r = part; r < ROWS; r += PARTS) {
        float sum = 0.0f;
#pragma unroll
        for (u32 k = 0; k < STRIDE; k += 4) {
            float row[4];
            load<4>(matrix + r * STRIDE + k, row);
#pragma unroll
            for (int i = 0; i < 4; ++i) sum += row[i] * value[k + i];
        }
        y[((size_t)blockIdx.y * ROWS + r) * N + column] = Cast<Y>::of(sum);
    }
}
