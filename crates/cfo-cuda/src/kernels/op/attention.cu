// Attention with one thread per query or key; the other side passes through shared memory in tiles. qkv is [B, N, 3 D]
// with D = HEADS * HD; out and its cotangent are [B, N, D]; log_sum_exp is [B, HEADS, N].

#define TILE 32

// Rows first .. first + TILE of one third of qkv (or of out), zero past the end, as single numbers.
template <class T, u32 N, int HD, int THREADS> DEVICE void stage(const T* from, u32 pitch, u32 first, float* to) {
    for (int i = threadIdx.x; i < TILE * HD; i += THREADS) {
        const u32 row = first + i / HD;
        to[i] = row < N ? real(from[(size_t)row * pitch + i % HD]) : 0.0f;
    }
}

template <int HD> DEVICE float dot(const float* a, const float* b) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HD; ++i) sum += a[i] * b[i];
    return sum;
}

template <class T, u32 N, u32 HEADS, int HD, int THREADS>
DEVICE void attention(const T* qkv, T* out, float* log_sum_exp, float scale) {
    constexpr u32 D = HEADS * HD;
    __shared__ float keys[TILE * HD], values[TILE * HD];
    const u32 head = blockIdx.y % HEADS, sample = blockIdx.y / HEADS;
    const u32 query = blockIdx.x * THREADS + threadIdx.x;
    const T* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    float q[HD], sum[HD] = {};
#pragma unroll
    for (int i = 0; i < HD; ++i) q[i] = query < N ? real(base[(size_t)query * 3 * D + i]) * scale : 0.0f;
    float highest = -INFINITE, total = 0.0f;
    for (u32 first = 0; first < N; first += TILE) {
        __syncthreads();
        stage<T, N, HD, THREADS>(base + D, 3 * D, first, keys);
        stage<T, N, HD, THREADS>(base + 2 * D, 3 * D, first, values);
        __syncthreads();
        const int count = first + TILE < N ? TILE : (int)(N - first);
        for (int k = 0; k < count; ++k) {
            const float s = dot<HD>(q, keys + k * HD);
            if (s > highest) {
                const float shrink = f_exp(highest - s);
                highest = s;
                total *= shrink;
#pragma unroll
                for (int i = 0; i < HD; ++i) sum[i] *= shrink;
            }
            const float p = f_exp(s - highest);
            total += p;
#pragma unroll
            for (int i = 0; i < HD; ++i) sum[i] += p * values[k * HD + i];
        }
    }
    if (query >= N) return;
    const float factor = 1.0f / total;
    T* to = out + ((size_t)sample * N + query) * D + head * HD;
#pragma unroll
    for (int i = 0; i < HD; ++i) to[i] = Cast<T>::of(sum[i] * factor);
    log_sum_exp[(size_t)blockIdx.y * N + query] = highest + logf(total);
}

// The cotangent of the queries, and for each query the product of the output with its cotangent.
template <class T, u32 N, u32 HEADS, int HD, int THREADS>
DEVICE void attention_queries(const T* qkv, const T* out, const float* log_sum_exp, const T* dout, T* dqkv, float* inner, float scale) {
    constexpr u32 D = HEADS * HD;
    __shared__ float keys[TILE * HD], values[TILE * HD];
    const u32 head = blockIdx.y % HEADS, sample = blockIdx.y / HEADS;
    const u32 query = blockIdx.x * THREADS + threadIdx.x;
    const T* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    const size_t at = ((size_t)sample * N + query) * D + head * HD;
    float q[HD], g[HD], dq[HD] = {};
    float delta = 0.0f, peak = 0.0f;
    if (query < N) {
#pragma unroll
        for (int i = 0; i < HD; ++i) {
            q[i] = real(base[(size_t)query * 3 * D + i]) * scale;
            g[i] = real(dout[at + i]);
            delta += g[i] * real(out[at + i]);
        }
        peak = log_sum_exp[(size_t)blockIdx.y * N + query];
        inner[(size_t)blockIdx.y * N + query] = delta;
    }
    for (u32 first = 0; first < N; first += TILE) {
        __syncthreads();
        stage<T, N, HD, THREADS>(base + D, 3 * D, first, keys);
        stage<T, N, HD, THREADS>(base + 2 * D, 3 * D, first, values);
        __syncthreads();
        const int count = first + TILE < N ? TILE : (int)(N - first);
        if (query >= N) continue;
        for (int k = 0; k < count; ++k) {
            const float p = f_exp(dot<HD>(q, keys + k * HD) - peak);
            const float ds = p * (dot<HD>(g, values + k * HD) - delta);
#pragma unroll
            for (int i = 0; i < HD; ++i) dq[i] += ds * keys[k * HD + i];
        }
    }
    if (query >= N) return;
    T* to = dqkv + ((size_t)sample * N + query) * 3 * D + head * HD;
#pragma unroll
    for (int i = 0; i < HD; ++i) to[i] = Cast<T>::of(dq[i] * scale);
}

// The cotangents of keys and values.
template <class T, u32 N, u32 HEADS, int HD, int THREADS>
DEVICE void attention_keys(const T* qkv, const float* log_sum_exp, const T* dout, T* dqkv, const float* inner, float scale) {
    constexpr u32 D = HEADS * HD;
    __shared__ float queries[TILE * HD], slopes[TILE * HD], peaks[TILE], deltas[TILE];
    const u32 head = blockIdx.y % HEADS, sample = blockIdx.y / HEADS;
    const u32 key = blockIdx.x * THREADS + threadIdx.x;
    const T* base = qkv + (size_t)sample * N * 3 * D + head * HD;
    float k[HD], v[HD], dk[HD] = {}, dv[HD] = {};
    if (key < N) {
#pragma unroll
        for (int i = 0; i < HD; ++i) {
            k[i] = real(base[(size_t)key * 3 * D + D + i]) * scale;
            v[i] = real(base[(size_t)key * 3 * D + 2 * D + i]);
        }
    }
    for (u32 first = 0; first < N; first += TILE) {
        __syncthreads();
        stage<T, N, HD, THREADS>(base, 3 * D, first, queries);
        stage<T, N, HD, THREADS>(dout + (size_t)sample * N * D + head * HD, D, first, slopes);
        for (int i = threadIdx.x; i < TILE; i += THREADS) {
            const bool inside = first + i < N;
            peaks[i] = inside ? log_sum_exp[(size_t)blockIdx.y * N + first + i] : 0.0f;
            deltas[i] = inside ? inner[(size_t)blockIdx.y * N + first + i] : 0.0f;
        }
        __syncthreads();
        const int count = first + TILE < N ? TILE : (int)(N - first);
        if (key >= N) continue;
        for (int j = 0; j < count; ++j) {
            const float p = f_exp(dot<HD>(k, queries + j * HD) - peaks[j]);
            const float ds = p * (dot<HD>(v, slopes + j * HD) - deltas[j]);
#pragma unroll
            for (int i = 0; i < HD; ++i) {
                dv[i] += p * slopes[j * HD + i];
                dk[i] += ds * queries[j * HD + i];
            }
        }
    }
    if (key >= N) return;
    T* to = dqkv + ((size_t)sample * N + key) * 3 * D + head * HD;
#pragma unroll
    for (int i = 0; i < HD; ++i) {
        to[D + i] = Cast<T>::of(dk[i] * scale);
        to[2 * D + i] = Cast<T>::of(dv[i]);
    }
}
