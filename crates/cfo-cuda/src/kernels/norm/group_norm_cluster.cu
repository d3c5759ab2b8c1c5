// Group normalisation of samples that fit into the shared memory of a few blocks. A cluster of blocks has some whole
// groups of a sample, each block a run of its rows. Sums are exchanged within the cluster, so the field is read from
// memory once.

template <class X, class O, u32 P, u32 C, u32 G, u32 SLICE, u32 CLUSTER, int T> struct Tile {
    static constexpr int V = 16 / sizeof(X) < 16 / sizeof(O) ? 16 / sizeof(O) : 16 / sizeof(X);
    static constexpr u32 LANES = SLICE / V;
    static constexpr u32 ROWS = T / LANES;
    static constexpr u32 SPAN = (P + CLUSTER - 1) / CLUSTER;
    static constexpr u32 STEPS = (SPAN + ROWS - 1) / ROWS;
    static constexpr u32 WIDTH = C / G;
    static constexpr u32 GROUPS = SLICE / WIDTH;
    static constexpr int WARPS = T / 32;
    static constexpr bool WHOLE = P % (CLUSTER * ROWS) == 0;
    static_assert(LANES <= 32 && 32 % LANES == 0 && SLICE % WIDTH == 0 && WIDTH % V == 0 && T % 32 == 0, "slices of whole groups");
    static DEVICE u32 rank() { return blockIdx.x % CLUSTER; }
    static DEVICE u32 slice() { return blockIdx.x / CLUSTER * SLICE; }
    static DEVICE u32 lane() { return threadIdx.x % LANES; }
    static DEVICE u32 row(u32 step) { return rank() * SPAN + step * ROWS + threadIdx.x / LANES; }
    static DEVICE bool inside(u32 step) {
        if (WHOLE) return true;
        const u32 r = step * ROWS + threadIdx.x / LANES;
        return r < SPAN && rank() * SPAN + r < P;
    }
};

template <u32 CLUSTER> DEVICE void cluster_arrive() {
    if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
template <u32 CLUSTER> DEVICE void cluster_wait() {
    if (CLUSTER > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    else __syncthreads();
}
DEVICE float cluster_read(const float* at, u32 rank) {
    u32 there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((u32)__cvta_generic_to_shared(at)), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
}
template <u32 CLUSTER> DEVICE float cluster_sum(const float* at) {
    if (CLUSTER == 1) return *at;
    float parts[CLUSTER];
#pragma unroll
    for (u32 r = 0; r < CLUSTER; ++r) parts[r] = cluster_read(at, r);
    float sum = parts[0];
#pragma unroll
    for (u32 r = 1; r < CLUSTER; ++r) sum += parts[r];
    return sum;
}

template <class X, class Y, class S, u32 P, u32 C, u32 G, u32 SLICE, u32 CLUSTER, int T, int A, bool OFFSET, bool SHIFT>
DEVICE void norm_cluster(const X* x, const float* scale, const float* bias, const float* offset, const S* shift, Y* y, float* mean, float* inverse, float epsilon) {
    typedef Tile<X, Y, P, C, G, SLICE, CLUSTER, T> K;
    constexpr int V = K::V;
    constexpr int PIECES = sizeof(X) * V / 16;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ float warps[K::WARPS][2][K::LANES];
    __shared__ float own[2 * K::GROUPS], center_of[K::GROUPS], factor_of[K::GROUPS];
    X* tile = reinterpret_cast<X*>(memory) + threadIdx.x * V;
    const u32 column = K::slice() + K::lane() * V, group = K::lane() * V / K::WIDTH;
    const size_t base = (size_t)blockIdx.y * P * C + column;
    // Each tile position is written and read by the same thread, so that no synchronisation is needed.
#pragma unroll
    for (u32 s = 0; s < K::STEPS; ++s) {
        if (K::inside(s)) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) copy_async(tile + s * T * V + p * (V / PIECES), x + base + (size_t)K::row(s) * C + p * (V / PIECES));
        }
        commit_copies();
    }
    const u32 first = K::slice() + group * K::WIDTH;
    const float reference = real(x[(size_t)blockIdx.y * P * C + first]) + (OFFSET ? offset[first] : 0.0f);
    float lift[V];
#pragma unroll
    for (int i = 0; i < V; ++i) lift[i] = (OFFSET ? offset[column + i] : 0.0f) - reference;
    float sum = 0.0f, squares = 0.0f;
    constexpr u32 EARLY = K::STEPS / 2;
#pragma unroll
    for (u32 s = 0; s < K::STEPS; ++s) {
        if (s == 0) wait_copies<K::STEPS - EARLY>();
        if (s == EARLY) wait_copies<0>();
        if (!K::inside(s)) continue;
        float value[V], some = 0.0f, more = 0.0f;
        load<V>(tile + s * T * V, value);
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float d = value[i] + lift[i];
            some += d;
            more += d * d;
        }
        sum += some;
        squares += more;
    }
#pragma unroll
    for (u32 o = 16; o >= K::LANES; o >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
        squares += __shfl_xor_sync(0xffffffffu, squares, o);
    }
    if (threadIdx.x % 32 < K::LANES) {
        warps[threadIdx.x / 32][0][K::lane()] = sum;
        warps[threadIdx.x / 32][1][K::lane()] = squares;
    }
    __syncthreads();
    if (threadIdx.x < 2 * K::GROUPS) {
        constexpr u32 PART = K::WIDTH / V;
        const u32 which = threadIdx.x / K::GROUPS, g = threadIdx.x % K::GROUPS;
        float all = 0.0f;
#pragma unroll
        for (int w = 0; w < K::WARPS; ++w)
#pragma unroll
            for (u32 l = 0; l < PART; ++l) all += warps[w][which][g * PART + l];
        own[threadIdx.x] = all;
    }
    cluster_arrive<CLUSTER>();
    cluster_wait<CLUSTER>();
    if (threadIdx.x < K::GROUPS) {
        constexpr float COUNT = (float)P * (float)K::WIDTH;
        const u32 c = K::slice() + threadIdx.x * K::WIDTH;
        const float start = real(x[(size_t)blockIdx.y * P * C + c]) + (OFFSET ? offset[c] : 0.0f);
        const float all = cluster_sum<CLUSTER>(own + threadIdx.x), square = cluster_sum<CLUSTER>(own + K::GROUPS + threadIdx.x);
        const float away = all / COUNT;
        const float variance = fmaxf(square / COUNT - away * away, 0.0f);
        const float center = start + away, factor = 1.0f / sqrtf(variance + epsilon);
        center_of[threadIdx.x] = center;
        factor_of[threadIdx.x] = factor;
        if (K::rank() == 0) {
            mean[blockIdx.y * G + c / K::WIDTH] = center;
            inverse[blockIdx.y * G + c / K::WIDTH] = factor;
        }
    }
    __syncthreads();
    cluster_arrive<CLUSTER>();
    float factor[V], start[V], after[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
        factor[i] = factor_of[group] * scale[column + i];
        start[i] = bias[column + i] - (center_of[group] - (OFFSET ? offset[column + i] : 0.0f)) * factor[i];
        after[i] = SHIFT ? real(shift[blockIdx.y * C + column + i]) : 0.0f;
    }
#pragma unroll
    for (u32 s = 0; s < K::STEPS; ++s) {
        if (!K::inside(s)) continue;
        float value[V];
        load<V>(tile + s * T * V, value);
#pragma unroll
        for (int i = 0; i < V; ++i) value[i] = activate<A>(value[i] * factor[i] + start[i]) + after[i];
        store<V>(y + base + (size_t)K::row(s) * C, value);
    }
    if (CLUSTER > 1) cluster_wait<CLUSTER>();
}

// Sums each of N numbers over the lanes of a warp that share a column. Afterwards a lane holds `kept` of them, from
// `at` on.
template <int N, u32 LANES> struct Fold {
    static DEVICE constexpr int kept() { int n = N; for (u32 o = 16; o >= LANES; o >>= 1) n = n > 1 ? n / 2 : 1; return n; }
    static DEVICE int run(float (&value)[N]) {
        int at = 0, n = N;
#pragma unroll
        for (u32 o = 16; o >= LANES; o >>= 1) {
            if (n > 1) {
                n /= 2;
                const bool upper = threadIdx.x & o;
                at += upper ? n : 0;
#pragma unroll
                for (int i = 0; i < N / 2; ++i) {
                    if (i >= n) break;
                    const float sent = upper ? value[i] : value[i + n], held = upper ? value[i + n] : value[i];
                    value[i] = held + __shfl_xor_sync(0xffffffffu, sent, o);
                }
            } else {
                value[0] += __shfl_xor_sync(0xffffffffu, value[0], o);
            }
        }
        return at;
    }
};

// The channels of a thread are summed in TURNS, to use fewer registers; `totals` [B, 3, C] gets each sample's
// contribution to the parameters' gradients.
template <class X, class D, class Y, class S, class Q, class R, u32 P, u32 C, u32 G, u32 SLICE, u32 CLUSTER, int T, int A, bool OFFSET, bool SHIFT, bool AGAIN, int TURNS>
DEVICE void norm_backward_cluster(const X* x, const float* scale, const float* bias, const float* mean, const float* inverse, const float* offset,
    const D* dy, const S* shift, Y* dx, Q* dshift, R* again, float* totals) {
    typedef Tile<X, D, P, C, G, SLICE, CLUSTER, T> K;
    constexpr int V = K::V, U = V / TURNS, SUMS = 2 + OFFSET + SHIFT;
    constexpr int ZSUM = 2, DSUM = 2 + OFFSET;
    constexpr int PX = sizeof(X) * V / 16, PD = sizeof(D) * V / 16;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ float warps[K::WARPS][SUMS][SLICE];
    __shared__ float own[SUMS * SLICE], sums[SUMS * SLICE];
    __shared__ float constants[K::GROUPS], slopes[K::GROUPS];
    X* tile = reinterpret_cast<X*>(memory) + threadIdx.x * V;
    D* given = reinterpret_cast<D*>(memory + sizeof(X) * K::STEPS * T * V) + threadIdx.x * V;
    const u32 column = K::slice() + K::lane() * V, group = K::lane() * V / K::WIDTH;
    const size_t base = (size_t)blockIdx.y * P * C + column;
#pragma unroll
    for (u32 s = 0; s < K::STEPS; ++s) {
        if (K::inside(s)) {
            const size_t from = base + (size_t)K::row(s) * C;
#pragma unroll
            for (int p = 0; p < PX; ++p) copy_async(tile + s * T * V + p * (V / PX), x + from + p * (V / PX));
#pragma unroll
            for (int p = 0; p < PD; ++p) copy_async(given + s * T * V + p * (V / PD), dy + from + p * (V / PD));
        }
        commit_copies();
    }
    const u32 g = blockIdx.y * G + column / K::WIDTH;
    const float middle = mean[g], inverted = inverse[g];
    constexpr u32 EARLY = K::STEPS / 2;
#pragma unroll
    for (int h = 0; h < TURNS; ++h) {
        float center[U], factor[U], term[U];
        float part[SUMS * U] = {};
#pragma unroll
        for (int i = 0; i < U; ++i) {
            const u32 c = column + h * U + i;
            center[i] = middle - (OFFSET ? offset[c] : 0.0f);
            factor[i] = inverted * scale[c];
            term[i] = bias[c];
        }
#pragma unroll
        for (u32 s = 0; s < K::STEPS; ++s) {
            if (h == 0 && s == 0) wait_copies<K::STEPS - EARLY>();
            if (h == 0 && s == EARLY) wait_copies<0>();
            if (!K::inside(s)) continue;
            float value[U], slope[U];
            load<U>(tile + s * T * V + h * U, value);
            load<U>(given + s * T * V + h * U, slope);
#pragma unroll
            for (int i = 0; i < U; ++i) {
                const float z = value[i] - center[i];
                const float d = slope[i] * activate_slope<A>(z * factor[i] + term[i]);
                part[i] += d;
                part[U + i] += d * z;
                if (OFFSET) part[ZSUM * U + i] += z;
                if (SHIFT) part[DSUM * U + i] += slope[i];
            }
        }
        typedef Fold<SUMS * U, K::LANES> F;
        const int at = F::run(part);
#pragma unroll
        for (int i = 0; i < F::kept(); ++i) {
            const int n = at + i;
            warps[threadIdx.x / 32][n / U][K::lane() * V + h * U + n % U] = part[i];
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < SUMS * SLICE; i += T) {
        float all = 0.0f;
#pragma unroll
        for (int w = 0; w < K::WARPS; ++w) all += warps[w][i / SLICE][i % SLICE];
        own[i] = all;
    }
    cluster_arrive<CLUSTER>();
    cluster_wait<CLUSTER>();
    for (u32 i = threadIdx.x; i < SUMS * SLICE; i += T) sums[i] = cluster_sum<CLUSTER>(own + i);
    __syncthreads();
    cluster_arrive<CLUSTER>();
    if (threadIdx.x < K::GROUPS) {
        constexpr float COUNT = (float)P * (float)K::WIDTH;
        const float by = inverse[blockIdx.y * G + K::slice() / K::WIDTH + threadIdx.x];
        float constant = 0.0f, slope = 0.0f;
        for (u32 i = 0; i < K::WIDTH; ++i) {
            const u32 c = threadIdx.x * K::WIDTH + i;
            constant += scale[K::slice() + c] * sums[c];
            slope += scale[K::slice() + c] * sums[SLICE + c];
        }
        constants[threadIdx.x] = by * constant / COUNT;
        slopes[threadIdx.x] = by * by * by * slope / COUNT;
    }
    __syncthreads();
    if (K::rank() == 0) {
        for (u32 i = threadIdx.x; i < SLICE; i += T) {
            const u32 c = K::slice() + i;
            const float by = inverse[blockIdx.y * G + c / K::WIDTH];
            float* total = totals + (size_t)blockIdx.y * 3 * C;
            total[c] = by * sums[SLICE + i];
            total[C + c] = sums[i];
            const float moved = OFFSET ? sums[ZSUM * SLICE + i] : 0.0f;
            total[2 * C + c] = by * scale[c] * sums[i] - (float)P * constants[i / K::WIDTH] - slopes[i / K::WIDTH] * moved;
            if (SHIFT) dshift[blockIdx.y * C + c] = Cast<Q>::of(sums[DSUM * SLICE + i]);
        }
    }
    const float steep = slopes[group];
    float factor[V], start[V], rest[V], after[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
        const u32 c = column + i;
        const float center = middle - (OFFSET ? offset[c] : 0.0f);
        factor[i] = inverted * scale[c];
        start[i] = bias[c] - center * factor[i];
        rest[i] = center * steep - constants[group];
        after[i] = AGAIN && SHIFT ? real(shift[blockIdx.y * C + c]) : 0.0f;
    }
#pragma unroll 4
    for (u32 s = 0; s < K::STEPS; ++s) {
        if (!K::inside(s)) continue;
        const size_t to = base + (size_t)K::row(s) * C;
        float value[V], slope[V];
        load<V>(tile + s * T * V, value);
        load<V>(given + s * T * V, slope);
        if (AGAIN) {
            float result[V];
#pragma unroll
            for (int i = 0; i < V; ++i) result[i] = activate<A>(value[i] * factor[i] + start[i]) + after[i];
            store<V>(again + to, result);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float d = slope[i] * activate_slope<A>(value[i] * factor[i] + start[i]);
            value[i] = d * factor[i] + (rest[i] - value[i] * steep);
        }
        store<V>(dx + to, value);
    }
    if (CLUSTER > 1) cluster_wait<CLUSTER>();
}
