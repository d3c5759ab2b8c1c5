// Layer normalisation: one warp per token, V neighbours per lane, the token in registers.

template <int V, u32 D> struct Token {
    static constexpr int STEPS = (D + 32 * V - 1) / (32 * V);
    static DEVICE u32 place(int step) { return (step * 32 + threadIdx.x % 32) * V; }
    static DEVICE bool inside(int step) { return D % (32 * V) == 0 || place(step) < D; }
};

// V neighbours as they are stored.
template <class T, int V> struct Bundle {
    Pack<T, V> pack;
    DEVICE float get(int i) const { return real(pack.at[i]); }
};
template <int V> struct Bundle<bf16, V> {
    Pack<u32, V / 2> pack;
    DEVICE float get(int i) const { return __uint_as_float(i % 2 ? pack.at[i / 2] & 0xffff0000u : pack.at[i / 2] << 16); }
};
template <> struct Bundle<bf16, 1> {
    bf16 pack;
    DEVICE float get(int) const { return real(pack); }
};

// A token as it is stored: loaded ahead of its use.
template <class T, int V, u32 D> struct Stored {
    typedef Token<V, D> K;
    Bundle<T, V> at[K::STEPS];
    DEVICE void read(const T* from) {
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s)
            if (K::inside(s)) at[s] = *reinterpret_cast<const Bundle<T, V>*>(from + K::place(s));
    }
    DEVICE float get(int s, int i) const { return K::inside(s) ? at[s].get(i) : 0.0f; }
};

// With RESIDUAL, `gate` times `value` is added to x first, and the sum is stored in `total`.
template <int V, u32 N, u32 D, u64 TOKENS, bool MODULATED, bool RESIDUAL, class X, class Y, class M, class L, class W, class S>
DEVICE void layer_norm(const X* x, const M* shift, const M* scale, const L* gate, const W* value, S* total, Y* y, float* mean, float* inverse,
    float epsilon) {
    typedef Token<V, D> K;
    const u64 token = (u64)blockIdx.x * 8 + threadIdx.x / 32;
    if (token >= TOKENS) return;
    const u64 sample = token / N;
    Stored<X, V, D> from;
    Stored<W, V, D> along;
    Stored<L, V, D> through;
    Stored<M, V, D> by, plus;
    from.read(x + token * D);
    if (RESIDUAL) along.read(value + token * D);
    if (RESIDUAL) through.read(gate + sample * D);
    if (MODULATED) by.read(scale + sample * D);
    if (MODULATED) plus.read(shift + sample * D);
    float now[K::STEPS][V];
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < K::STEPS; ++s) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
            now[s][i] = from.get(s, i);
            if (RESIDUAL) now[s][i] = real(Cast<S>::of(now[s][i] + through.get(s, i) * along.get(s, i)));
            sum += now[s][i];
        }
        if (RESIDUAL && K::inside(s)) store<V>(total + token * D + K::place(s), now[s]);
    }
    const float center = warp_sum(sum) / (float)D;
    float squares = 0.0f;
#pragma unroll
    for (int s = 0; s < K::STEPS; ++s) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float d = now[s][i] - center;
            if (K::inside(s)) squares += d * d;
        }
    }
    const float factor = 1.0f / sqrtf(warp_sum(squares) / (float)D + epsilon);
    if (threadIdx.x % 32 == 0) {
        mean[token] = center;
        inverse[token] = factor;
    }
#pragma unroll
    for (int s = 0; s < K::STEPS; ++s) {
        if (!K::inside(s)) continue;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float normal = (now[s][i] - center) * factor;
            now[s][i] = MODULATED ? normal * (1.0f + by.get(s, i)) + plus.get(s, i) : normal;
        }
        store<V>(y + token * D + K::place(s), now[s]);
    }
}

// A block iterates over SPAN tokens of one sample; the last block of a sample adds all blocks' sums for shift, scale
// and gate. With ADD, `plus` is added to dx. With GATED, `gated` is dx times the gate and dgate the sum of dx times
// `value`.
template <int V, u32 N, u32 D, u32 CHUNKS, bool MODULATED, bool ADD, bool GATED, class X, class M, class G, class R, class Y, class T, class L, class W, class P, class Q>
DEVICE void layer_norm_backward(const X* x, const M* scale, const float* mean, const float* inverse, const G* dy, const R* plus, const L* gate, const W* value,
    Y* dx, T* dshift, T* dscale, P* gated, Q* dgate, float* partial, u32* tickets) {
    typedef Token<V, D> K;
    constexpr u32 SPAN = (N + CHUNKS - 1) / CHUNKS, SUMS = (MODULATED ? 2 : 0) + (GATED ? 1 : 0);
    __shared__ float shared[SUMS > 0 ? SUMS * D : 1];
    const u32 first = blockIdx.x * SPAN, end = first + SPAN < N ? first + SPAN : N;
    float sums[SUMS > 0 ? SUMS : 1][K::STEPS][V] = {};
    Stored<M, V, D> by;
    Stored<L, V, D> through;
    if (MODULATED) by.read(scale + (u64)blockIdx.y * D);
    if (GATED) through.read(gate + (u64)blockIdx.y * D);
    Stored<X, V, D> next_x;
    Stored<G, V, D> next_dy;
    Stored<R, V, D> next_plus;
    Stored<W, V, D> next_value;
    float next_center, next_factor;
    auto read = [&](u32 n) {
        const u64 token = (u64)blockIdx.y * N + n;
        next_center = mean[token];
        next_factor = inverse[token];
        next_x.read(x + token * D);
        next_dy.read(dy + token * D);
        if (ADD) next_plus.read(plus + token * D);
        if (GATED) next_value.read(value + token * D);
    };
    u32 n = first + threadIdx.x / 32;
    if (n < end) read(n);
#pragma unroll 1
    for (; n < end; n += 8) {
        const u64 token = (u64)blockIdx.y * N + n;
        const float center = next_center, factor = next_factor;
        float normal[K::STEPS][V], slope[K::STEPS][V];
        float constant = 0.0f, steep = 0.0f;
        const Stored<R, V, D> more = next_plus;
        const Stored<W, V, D> along = next_value;
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
#pragma unroll
            for (int i = 0; i < V; ++i) {
                normal[s][i] = K::inside(s) ? (next_x.get(s, i) - center) * factor : 0.0f;
                slope[s][i] = next_dy.get(s, i);
            }
        }
        if (n + 8 < end) read(n + 8);
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
#pragma unroll
            for (int i = 0; i < V; ++i) {
                if (MODULATED) {
                    sums[0][s][i] += slope[s][i];
                    sums[SUMS > 1 ? 1 : 0][s][i] += slope[s][i] * normal[s][i];
                    slope[s][i] *= 1.0f + by.get(s, i);
                }
                constant += slope[s][i];
                steep += slope[s][i] * normal[s][i];
            }
        }
        constant = warp_sum(constant) / (float)D;
        steep = warp_sum(steep) / (float)D;
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
            if (!K::inside(s)) continue;
            float product[V];
#pragma unroll
            for (int i = 0; i < V; ++i) {
                float& d = slope[s][i];
                d = factor * (d - constant - normal[s][i] * steep);
                if (ADD) d += more.get(s, i);
                if (GATED) {
                    sums[SUMS > 0 ? SUMS - 1 : 0][s][i] += d * along.get(s, i);
                    product[i] = d * through.get(s, i);
                }
            }
            store<V>(dx + token * D + K::place(s), slope[s]);
            if (GATED) store<V>(gated + token * D + K::place(s), product);
        }
    }
    if (SUMS == 0) return;
    for (u32 i = threadIdx.x; i < SUMS * D; i += 256) shared[i] = 0.0f;
    for (int warp = 0; warp < 8; ++warp) {
        __syncthreads();
        if (threadIdx.x / 32 != warp) continue;
#pragma unroll
        for (int s = 0; s < K::STEPS; ++s) {
            if (!K::inside(s)) continue;
#pragma unroll
            for (int i = 0; i < V * SUMS; ++i) shared[i / V * D + K::place(s) + i % V] += sums[i / V][s][i % V];
        }
    }
    __syncthreads();
    if (CHUNKS > 1) {
        float* own = partial + ((u64)blockIdx.y * CHUNKS + blockIdx.x) * SUMS * D;
        for (u32 i = threadIdx.x; i < SUMS * D; i += 256) own[i] = shared[i];
        if (!last_block(tickets + blockIdx.y, CHUNKS)) return;
        for (u32 i = threadIdx.x; i < SUMS * D; i += 256) {
            float sum = 0.0f;
            for (u32 c = 0; c < CHUNKS; ++c) sum += __ldcg(partial + ((u64)blockIdx.y * CHUNKS + c) * SUMS * D + i);
            shared[i] = sum;
        }
        __syncthreads();
    }
    for (u32 i = threadIdx.x; i < D; i += 256) {
        if (MODULATED) {
            dshift[(u64)blockIdx.y * D + i] = Cast<T>::of(shared[i]);
            dscale[(u64)blockIdx.y * D + i] = Cast<T>::of(shared[D + i]);
        }
        if (GATED) dgate[(u64)blockIdx.y * D + i] = Cast<Q>::of(shared[(SUMS - 1) * D + i]);
    }
}
