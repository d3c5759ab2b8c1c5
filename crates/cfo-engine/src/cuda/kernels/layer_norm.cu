// Layer normalisation: one warp a token, V neighbours a lane, the token in registers.

template <int V, u32 D> struct Token {
    static constexpr int STEPS = (D + 32 * V - 1) / (32 * V);
    static DEVICE u32 place(int step) { return (step * 32 + threadIdx.x % 32) * V; }
};

template <class X, class Y, class M, int V, u32 N, u32 D, u64 TOKENS, bool MODULATED>
DEVICE void layer_norm(const X* x, const M* shift, const M* scale, Y* y, float* mean, float* inverse, float epsilon) {
    typedef Token<V, D> K;
    const u64 token = (u64)blockIdx.x * 8 + threadIdx.x / 32;
    if (token >= TOKENS) return;
    float value[K::STEPS][V];
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < K::STEPS; ++s) {
        if (K::place(s) < D) load<V>(x + token * D + K::place(s), value[s]);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            if (K::place(s) >= D) value[s][i] = 0.0f;
            sum += value[s][i];
        }
    }
    const float center = warp_sum(sum) / (float)D;
    float squares = 0.0f;
#pragma unroll
    for (int s = 0; s < K::STEPS; ++s) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float d = value[s][i] - center;
            if (K::place(s) < D) squares += d * d;
        }
    }
    const float factor = 1.0f / sqrtf(warp_sum(squares) / (float)D + epsilon);
    if (threadIdx.x % 32 == 0) {
        mean[token] = center;
        inverse[token] = factor;
    }
    const u64 sample = token / N;
#pragma unroll
    for (int s = 0; s < K::STEPS; ++s) {
        if (K::place(s) >= D) continue;
        float by[V], plus[V];
        if (MODULATED) {
            load<V>(scale + sample * D + K::place(s), by);
            load<V>(shift + sample * D + K::place(s), plus);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float normal = (value[s][i] - center) * factor;
            value[s][i] = MODULATED ? normal * (1.0f + by[i]) + plus[i] : normal;
        }
        store<V>(y + token * D + K::place(s), value[s]);
    }
}

// A block walks SPAN tokens of one sample; the last block of a sample adds what its blocks found for shift and scale.
// With ADD, `plus` is added to dx.
template <class X, class G, class R, class Y, class M, class T, int V, u32 N, u32 D, u32 CHUNKS, bool MODULATED, bool ADD>
DEVICE void layer_norm_backward(const X* x, const M* scale, const float* mean, const float* inverse, const G* dy, const R* plus, Y* dx,
    T* dshift, T* dscale, float* partial, u32* tickets) {
    typedef Token<V, D> K;
    constexpr u32 SPAN = (N + CHUNKS - 1) / CHUNKS;
    __shared__ float shared[MODULATED ? 2 * D : 1];
    const u32 first = blockIdx.x * SPAN, end = first + SPAN < N ? first + SPAN : N;
    float down[K::STEPS][V] = {}, along[K::STEPS][V] = {}, by[K::STEPS][V] = {};
    if (MODULATED) {
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s)
            if (K::place(s) < D) load<V>(scale + (u64)blockIdx.y * D + K::place(s), by[s]);
    }
    for (u32 n = first + threadIdx.x / 32; n < end; n += 8) {
        const u64 token = (u64)blockIdx.y * N + n;
        const float center = mean[token], factor = inverse[token];
        float normal[K::STEPS][V], slope[K::STEPS][V];
        float constant = 0.0f, steep = 0.0f;
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
            if (K::place(s) < D) {
                load<V>(x + token * D + K::place(s), normal[s]);
                load<V>(dy + token * D + K::place(s), slope[s]);
            }
#pragma unroll
            for (int i = 0; i < V; ++i) {
                const bool inside = K::place(s) < D;
                normal[s][i] = inside ? (normal[s][i] - center) * factor : 0.0f;
                slope[s][i] = inside ? slope[s][i] : 0.0f;
                if (MODULATED) {
                    down[s][i] += slope[s][i];
                    along[s][i] += slope[s][i] * normal[s][i];
                    slope[s][i] *= 1.0f + by[s][i];
                }
                constant += slope[s][i];
                steep += slope[s][i] * normal[s][i];
            }
        }
        constant = warp_sum(constant) / (float)D;
        steep = warp_sum(steep) / (float)D;
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
            if (K::place(s) >= D) continue;
#pragma unroll
            for (int i = 0; i < V; ++i) slope[s][i] = factor * (slope[s][i] - constant - normal[s][i] * steep);
            if (ADD) {
                float more[V];
                load<V>(plus + token * D + K::place(s), more);
#pragma unroll
                for (int i = 0; i < V; ++i) slope[s][i] += more[i];
            }
            store<V>(dx + token * D + K::place(s), slope[s]);
        }
    }
    if (!MODULATED) return;
    for (u32 i = threadIdx.x; i < 2 * D; i += 256) shared[i] = 0.0f;
    for (int warp = 0; warp < 8; ++warp) {
        __syncthreads();
        if (threadIdx.x / 32 == warp) {
#pragma unroll
            for (int s = 0; s < K::STEPS; ++s) {
                if (K::place(s) >= D) continue;
#pragma unroll
                for (int i = 0; i < V; ++i) {
                    shared[K::place(s) + i] += down[s][i];
                    shared[D + K::place(s) + i] += along[s][i];
                }
            }
        }
    }
    __syncthreads();
    if (CHUNKS > 1) {
        float* own = partial + ((u64)blockIdx.y * CHUNKS + blockIdx.x) * 2 * D;
        for (u32 i = threadIdx.x; i < 2 * D; i += 256) own[i] = shared[i];
        if (!last_block(tickets + blockIdx.y, CHUNKS)) return;
        for (u32 i = threadIdx.x; i < 2 * D; i += 256) {
            float sum = 0.0f;
            for (u32 c = 0; c < CHUNKS; ++c) sum += __ldcg(partial + ((u64)blockIdx.y * CHUNKS + c) * 2 * D + i);
            shared[i] = sum;
        }
        __syncthreads();
    }
    for (u32 i = threadIdx.x; i < D; i += 256) {
        dshift[(u64)blockIdx.y * D + i] = Cast<T>::of(shared[i]);
        dscale[(u64)blockIdx.y * D + i] = Cast<T>::of(shared[D + i]);
    }
}
