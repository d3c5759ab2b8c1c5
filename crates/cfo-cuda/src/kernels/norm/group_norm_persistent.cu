// Group normalisation by a persistent kernel with teams of blocks. A team processes one sample at a time, each block a
// run of its rows in shared memory. Sums are exchanged through global memory. While a block writes a row's results, the
// row of the team's next sample is loaded to the same place.

template <class X, class O, u32 B, u32 P, u32 C, u32 G, u32 TEAM, u32 TEAMS, int T> struct Crew {
    static constexpr int V = sizeof(X) < sizeof(O) ? 16 / sizeof(X) : 16 / sizeof(O);
    static constexpr u32 LANES = C / V;
    static constexpr u32 ROWS = T / LANES;
    static constexpr u32 SPAN = (P + TEAM - 1) / TEAM;
    static constexpr u32 STEPS = (SPAN + ROWS - 1) / ROWS;
    static constexpr u32 EARLY = STEPS / 2;
    static constexpr u32 WIDTH = C / G;
    static constexpr u32 PART = WIDTH / V;
    static constexpr int WARPS = T / 32;
    // Number of threads that together cover all columns, and number of such groups.
    static constexpr u32 STACK = LANES > 32 ? LANES : 32;
    static constexpr u32 PILES = T / STACK;
    static constexpr bool WHOLE = P % TEAM == 0 && SPAN % ROWS == 0;
    static_assert((32 % LANES == 0 || LANES % 32 == 0) && T % STACK == 0 && WIDTH % V == 0 && T % 32 == 0, "rows of whole vectors in a warp");
    static DEVICE u32 team() { return blockIdx.x / TEAM; }
    static DEVICE u32 rank() { return blockIdx.x % TEAM; }
    // Position of the team's sums for a sample; those of the previous sample may still be read.
    static DEVICE u32 turn(u32 sample) { return (team() * 2 + sample / TEAMS % 2) * TEAM; }
    static DEVICE u32 lane() { return threadIdx.x % LANES; }
    static DEVICE u32 row(u32 step) { return rank() * SPAN + step * ROWS + threadIdx.x / LANES; }
    static DEVICE bool inside(u32 step) {
        if (WHOLE) return true;
        const u32 r = step * ROWS + threadIdx.x / LANES;
        return r < SPAN && rank() * SPAN + r < P;
    }
    // Starts loading a step of the sample's rows to the tile.
    template <class Z> static DEVICE void fetch(Z* tile, const Z* from, u32 sample, u32 step) {
        constexpr int PIECES = sizeof(Z) * V / 16;
        if (!inside(step)) return;
        const Z* at = from + (size_t)sample * P * C + (size_t)row(step) * C + lane() * V;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) copy_async(tile + (step * T + threadIdx.x) * V + p * (V / PIECES), at + p * (V / PIECES));
    }
};

// Waits until all blocks of a team have arrived; their earlier writes are then visible.
DEVICE void team_meet(u32* count, u32 members) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1u);
        u32 here;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(count) : "memory");
        } while (here < members);
        __threadfence();
    }
    __syncthreads();
}

// The last block to leave resets the counters to 0.
DEVICE void team_leave(u32* count, u32 members) {
    if (threadIdx.x == 0 && atomicAdd(count + 1, 1u) == members - 1) {
        count[0] = 0u;
        count[1] = 0u;
    }
}

// Two numbers per group: sums over a block of each thread's numbers for its group, then over the team. All are returned
// in `totals`.
template <class K, u32 G, u32 TEAM> DEVICE void team_sums(float first, float second, float* piles, float* partial, float* totals, u32* count) {
#pragma unroll
    for (u32 o = 16; o >= K::LANES; o >>= 1) {
        first += __shfl_xor_sync(0xffffffffu, first, o);
        second += __shfl_xor_sync(0xffffffffu, second, o);
    }
    if (threadIdx.x % K::STACK < K::LANES) {
        piles[(threadIdx.x / K::STACK * 2) * K::LANES + K::lane()] = first;
        piles[(threadIdx.x / K::STACK * 2 + 1) * K::LANES + K::lane()] = second;
    }
    __syncthreads();
    if (threadIdx.x < 2 * G) {
        const u32 which = threadIdx.x / G, g = threadIdx.x % G;
        float sum = 0.0f;
#pragma unroll
        for (u32 pile = 0; pile < K::PILES; ++pile)
#pragma unroll
            for (u32 l = 0; l < K::PART; ++l) sum += piles[(pile * 2 + which) * K::LANES + g * K::PART + l];
        partial[K::rank() * 2 * G + threadIdx.x] = sum;
    }
    team_meet(count, TEAM);
    for (u32 i = threadIdx.x / 32; i < 2 * G; i += K::WARPS) {
        float sum = 0.0f;
        for (u32 r = threadIdx.x % 32; r < TEAM; r += 32) sum += __ldcg(partial + r * 2 * G + i);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) totals[i] = sum;
    }
    __syncthreads();
}

template <class X, class Y, class S, u32 B, u32 P, u32 C, u32 G, u32 TEAM, u32 TEAMS, int T, int A, bool OFFSET, bool SHIFT>
DEVICE void norm_persistent(const X* x, const float* scale, const float* bias, const float* offset, const S* shift, Y* y, float* mean, float* inverse, float epsilon, float* partial, u32* tickets) {
    typedef Crew<X, Y, B, P, C, G, TEAM, TEAMS, T> K;
    constexpr int V = K::V;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ float piles[K::PILES * 2 * K::LANES], totals[2 * G];
    X* tile = reinterpret_cast<X*>(memory);
    const u32 column = K::lane() * V, group = column / K::WIDTH;
    u32 sample = K::team();
    if (sample >= B) return;
    for (u32 s = 0; s < K::STEPS; ++s) {
        K::fetch(tile, x, sample, s);
        commit_copies();
    }
    float reference = real(x[(size_t)sample * P * C + group * K::WIDTH]);
    for (; sample < B; sample += TEAMS) {
        const float base = reference + (OFFSET ? offset[group * K::WIDTH] : 0.0f);
        float lift[V];
#pragma unroll
        for (int i = 0; i < V; ++i) lift[i] = (OFFSET ? offset[column + i] : 0.0f) - base;
        float sum = 0.0f, squares = 0.0f;
        auto add = [&](u32 s) {
            if (!K::inside(s)) return;
            float value[V];
            load<V>(tile + (s * T + threadIdx.x) * V, value);
            float some = 0.0f, more = 0.0f;
#pragma unroll
            for (int i = 0; i < V; ++i) {
                const float d = value[i] + lift[i];
                some += d;
                more += d * d;
            }
            sum += some;
            squares += more;
        };
        wait_copies<K::STEPS - K::EARLY>();
#pragma unroll 4
        for (u32 s = 0; s < K::EARLY; ++s) add(s);
        wait_copies<0>();
#pragma unroll 4
        for (u32 s = K::EARLY; s < K::STEPS; ++s) add(s);
        u32* count = tickets + 2 * sample;
        team_sums<K, G, TEAM>(sum, squares, piles, partial + K::turn(sample) * 2 * G, totals, count);
        constexpr float COUNT = (float)P * (float)K::WIDTH;
        const float away = totals[group] / COUNT;
        const float center = base + away, by = 1.0f / sqrtf(fmaxf(totals[G + group] / COUNT - away * away, 0.0f) + epsilon);
        if (K::rank() == 0 && threadIdx.x < K::LANES && column % K::WIDTH == 0) {
            mean[sample * G + group] = center;
            inverse[sample * G + group] = by;
        }
        float factor[V], start[V], after[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            factor[i] = by * scale[column + i];
            start[i] = bias[column + i] - (center - (OFFSET ? offset[column + i] : 0.0f)) * factor[i];
            after[i] = SHIFT ? real(shift[sample * C + column + i]) : 0.0f;
        }
        const u32 next = sample + TEAMS;
        if (next < B) reference = real(x[(size_t)next * P * C + group * K::WIDTH]);
        Y* to = y + (size_t)sample * P * C + column;
#pragma unroll 4
        for (u32 s = 0; s < K::STEPS; ++s) {
            if (K::inside(s)) {
                float value[V];
                load<V>(tile + (s * T + threadIdx.x) * V, value);
                if (next < B) K::fetch(tile, x, next, s);
#pragma unroll
                for (int i = 0; i < V; ++i) value[i] = activate<A>(value[i] * factor[i] + start[i]) + after[i];
                store<V>(to + (size_t)K::row(s) * C, value);
            }
            commit_copies();
        }
        team_leave(count, TEAM);
    }
    wait_copies<0>();
}

// `totals` [TEAM TEAMS, 3, C] gets each block's sums for scale, bias and offset.
template <class X, class D, class Y, class S, class Q, class R, u32 B, u32 P, u32 C, u32 G, u32 TEAM, u32 TEAMS, int T, int A, bool OFFSET, bool SHIFT, bool AGAIN>
DEVICE void norm_backward_persistent(const X* x, const float* scale, const float* bias, const float* mean, const float* inverse, const float* offset,
    const D* dy, const S* shift, Y* dx, Q* dshift, R* again, float* totals, float* partial, u32* tickets) {
    typedef Crew<X, D, B, P, C, G, TEAM, TEAMS, T> K;
    constexpr int V = K::V;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ float piles[K::PILES * 2 * K::LANES], sums[2 * G];
    X* tile = reinterpret_cast<X*>(memory);
    D* given = reinterpret_cast<D*>(memory + sizeof(X) * K::SPAN * C);
    float* shifts = partial + TEAMS * 2 * TEAM * 2 * G;
    const u32 column = K::lane() * V, group = column / K::WIDTH;
    u32 sample = K::team();
    float all_scale[V] = {}, all_bias[V] = {}, all_offset[V] = {};
    if (sample < B) {
        for (u32 s = 0; s < K::STEPS; ++s) {
            K::fetch(tile, x, sample, s);
            K::fetch(given, dy, sample, s);
            commit_copies();
        }
    }
    for (; sample < B; sample += TEAMS) {
        const float by = inverse[sample * G + group], center = mean[sample * G + group];
        float part_scale[V] = {}, part_bias[V] = {}, part_normal[V] = {}, part_shift[V] = {};
        u32 rows = 0;
        float zero[V];
#pragma unroll
        for (int i = 0; i < V; ++i) zero[i] = ((OFFSET ? offset[column + i] : 0.0f) - center) * by;
        float first = 0.0f, second = 0.0f;
        {
            float times[V], plus[V], after[V];
#pragma unroll
            for (int i = 0; i < V; ++i) {
                times[i] = scale[column + i];
                plus[i] = bias[column + i];
                after[i] = AGAIN && SHIFT ? real(shift[sample * C + column + i]) : 0.0f;
            }
            R* to = AGAIN ? again + (size_t)sample * P * C + column : nullptr;
            auto add = [&](u32 s) {
                if (!K::inside(s)) return;
                float value[V], slope[V];
                load<V>(tile + (s * T + threadIdx.x) * V, value);
                load<V>(given + (s * T + threadIdx.x) * V, slope);
#pragma unroll
                for (int i = 0; i < V; ++i) {
                    const float normal = value[i] * by + zero[i];
                    const float t = normal * times[i] + plus[i];
                    const float d = slope[i] * activate_slope<A>(t);
                    part_bias[i] += d;
                    part_scale[i] += d * normal;
                    if (OFFSET) part_normal[i] += normal;
                    if (SHIFT) part_shift[i] += slope[i];
                    if (AGAIN) value[i] = activate<A>(t) + after[i];
                    slope[i] = d;
                }
                rows += 1;
                store<V>(given + (s * T + threadIdx.x) * V, slope);
                if (AGAIN) store<V>(to + (size_t)K::row(s) * C, value);
            };
            wait_copies<K::STEPS - K::EARLY>();
#pragma unroll 2
            for (u32 s = 0; s < K::EARLY; ++s) add(s);
            wait_copies<0>();
#pragma unroll 2
            for (u32 s = K::EARLY; s < K::STEPS; ++s) add(s);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                all_scale[i] += part_scale[i];
                all_bias[i] += part_bias[i];
                first += times[i] * part_bias[i];
                second += times[i] * part_scale[i];
            }
        }
        if (SHIFT) {
            __shared__ float columns[K::PILES * C];
            typedef Fold<V, K::LANES> F;
            const int at = F::run(part_shift);
#pragma unroll
            for (int i = 0; i < F::kept(); ++i) columns[threadIdx.x / K::STACK * C + column + at + i] = part_shift[i];
            __syncthreads();
            for (u32 c = threadIdx.x; c < C; c += T) {
                float sum = 0.0f;
#pragma unroll
                for (u32 pile = 0; pile < K::PILES; ++pile) sum += columns[pile * C + c];
                shifts[(K::turn(sample) + K::rank()) * C + c] = sum;
            }
        }
        u32* count = tickets + 2 * sample;
        team_sums<K, G, TEAM>(first, second, piles, partial + K::turn(sample) * 2 * G, sums, count);
        if (SHIFT) {
            for (u32 c = K::rank() + threadIdx.x / 32 * TEAM; c < C; c += TEAM * K::WARPS) {
                float sum = 0.0f;
                for (u32 r = threadIdx.x % 32; r < TEAM; r += 32) sum += __ldcg(shifts + (K::turn(sample) + r) * C + c);
                sum = warp_sum(sum);
                if (threadIdx.x % 32 == 0) dshift[sample * C + c] = Cast<Q>::of(sum);
            }
        }
        constexpr float COUNT = (float)P * (float)K::WIDTH;
        const float constant = by * sums[group] / COUNT, steep = by * sums[G + group] / COUNT, slant = by * steep;
        float factor[V], rest[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            factor[i] = by * scale[column + i];
            rest[i] = constant + steep * zero[i];
            if (OFFSET) all_offset[i] += factor[i] * part_bias[i] - (float)rows * constant - steep * part_normal[i];
        }
        const u32 next = sample + TEAMS;
        Y* to = dx + (size_t)sample * P * C + column;
#pragma unroll 2
        for (u32 s = 0; s < K::STEPS; ++s) {
            if (K::inside(s)) {
                float value[V], slope[V];
                load<V>(tile + (s * T + threadIdx.x) * V, value);
                load<V>(given + (s * T + threadIdx.x) * V, slope);
                if (next < B) {
                    K::fetch(tile, x, next, s);
                    K::fetch(given, dy, next, s);
                }
#pragma unroll
                for (int i = 0; i < V; ++i) value[i] = slope[i] * factor[i] - (rest[i] + value[i] * slant);
                store<V>(to + (size_t)K::row(s) * C, value);
            }
            commit_copies();
        }
        team_leave(count, TEAM);
    }
    wait_copies<0>();
    __syncthreads();
    // The tile is no longer needed: [ROWS, 3, C].
    float* all = reinterpret_cast<float*>(memory);
    float* own = all + threadIdx.x / K::LANES * 3 * C + column;
#pragma unroll
    for (int i = 0; i < V; ++i) {
        own[i] = all_scale[i];
        own[C + i] = all_bias[i];
        own[2 * C + i] = all_offset[i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 3 * C; i += T) {
        float sum = 0.0f;
        for (u32 r = 0; r < K::ROWS; ++r) sum += all[r * 3 * C + i];
        totals[(size_t)blockIdx.x * 3 * C + i] = sum;
    }
}
