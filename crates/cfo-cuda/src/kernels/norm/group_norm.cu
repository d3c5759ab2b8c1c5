// Group normalisation with the convolution's bias before it, activation and time term after it.
//
// A sample [P, C] is divided into CHUNKS runs of rows, one block each. A thread has V neighbouring channels and
// iterates over the rows, so that the channels' coefficients stay in registers. Sums are per channel; the last block of
// a sample combines them in a fixed order. A second launch starts with the samples that the first one read last, which
// are still in the cache.

template <int V, u32 P, u32 C, u32 G, u32 CHUNKS, int ROWS> struct Cut {
    static constexpr u32 LANES = C / V;
    static constexpr u32 WIDTH = C / G;
    static constexpr u32 SPAN = (P + CHUNKS - 1) / CHUNKS;
    static constexpr u32 THREADS = LANES * ROWS;
    static DEVICE u32 lane() { return threadIdx.x % LANES; }
    static DEVICE u32 row() { return threadIdx.x / LANES; }
    static DEVICE bool active() { return threadIdx.x < THREADS; }
    static DEVICE u32 first() { return blockIdx.x * SPAN; }
    static DEVICE u32 end() { return first() + SPAN < P ? first() + SPAN : P; }
    static DEVICE u32 second_sample() { return CHUNKS == 1 ? blockIdx.y : gridDim.y - 1 - blockIdx.y; }
};

// Sums over the rows of a block: from each thread's N x V numbers (N even) to N x C in `sums`, two at a time.
template <int N, int V, class K, u32 C, int ROWS> DEVICE void fold_rows(const float (&part)[N][V], float* shared, float* sums) {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        __syncthreads();
        if (K::active()) {
            store<V>(shared + K::row() * C + K::lane() * V, part[n]);
            store<V>(shared + (ROWS + K::row()) * C + K::lane() * V, part[n + 1]);
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < 2 * C; i += blockDim.x) {
            const float* column = shared + (i / C) * ROWS * C + i % C;
            float sum = 0.0f;
#pragma unroll 8
            for (int r = 0; r < ROWS; ++r) sum += column[r * C];
            sums[n * C + i] = sum;
        }
    }
    __syncthreads();
}

// Sums over the chunks of a sample; returns whether this block has them.
template <int N, u32 C, u32 CHUNKS> DEVICE bool fold_chunks(float* sums, float* partial, u32* tickets) {
    if (CHUNKS == 1) return true;
    float* own = partial + ((size_t)blockIdx.y * CHUNKS + blockIdx.x) * N * C;
    for (u32 i = threadIdx.x; i < N * C; i += blockDim.x) own[i] = sums[i];
    if (!last_block(tickets + blockIdx.y, CHUNKS)) return false;
    const float* all = partial + (size_t)blockIdx.y * CHUNKS * N * C;
    for (u32 i = threadIdx.x; i < N * C; i += blockDim.x) {
        float sum = 0.0f;
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) sum += __ldcg(all + (size_t)chunk * N * C + i);
        sums[i] = sum;
    }
    __syncthreads();
    return true;
}

// Mean and inverse deviation of each group of each sample. Sums are relative to the sample's first row, which is close
// to the mean, so that nothing cancels.
template <class X, int V, u32 P, u32 C, u32 G, u32 CHUNKS, int ROWS, bool OFFSET>
DEVICE bool norm_statistics(const X* x, const float* offset, float* mean, float* inverse, float epsilon, float* partial, u32* tickets) {
    typedef Cut<V, P, C, G, CHUNKS, ROWS> K;
    __shared__ alignas(32) float shared[2 * K::THREADS * V];
    __shared__ float sums[2 * C];
    const X* sample = x + (size_t)blockIdx.y * P * C;
    float part[2][V] = {};
    if (K::active()) {
        const X* at = sample + K::lane() * V;
        float reference[V];
        load<V>(at, reference);
#pragma unroll 4
        for (u32 r = K::first() + K::row(); r < K::end(); r += ROWS) {
            float value[V];
            load<V>(at + (size_t)r * C, value);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                float d = value[i] - reference[i];
                part[0][i] += d;
                part[1][i] += d * d;
            }
        }
    }
    fold_rows<2, V, K, C, ROWS>(part, shared, sums);
    if (!fold_chunks<2, C, CHUNKS>(sums, partial, tickets)) return false;
    // Per channel: mean and sum of squares around it.
    for (u32 c = threadIdx.x; c < C; c += blockDim.x) {
        float shifted = sums[c] / (float)P;
        sums[C + c] -= sums[c] * shifted;
        sums[c] = real(sample[c]) + (OFFSET ? offset[c] : 0.0f) + shifted;
    }
    __syncthreads();
    for (u32 g = threadIdx.x; g < G; g += blockDim.x) {
        double center = 0.0, squares = 0.0;
        for (u32 c = g * K::WIDTH; c < (g + 1) * K::WIDTH; ++c) center += (double)sums[c];
        center /= (double)K::WIDTH;
        for (u32 c = g * K::WIDTH; c < (g + 1) * K::WIDTH; ++c) {
            double d = (double)sums[c] - center;
            squares += (double)sums[C + c] + (double)P * d * d;
        }
        mean[blockIdx.y * G + g] = (float)center;
        inverse[blockIdx.y * G + g] = (float)(1.0 / sqrt(fmax(squares, 0.0) / ((double)P * (double)K::WIDTH) + (double)epsilon));
    }
    __syncthreads();
    return true;
}

template <class X, class Y, class S, int V, u32 P, u32 C, u32 G, u32 CHUNKS, int ROWS, int A, bool OFFSET, bool SHIFT>
DEVICE void norm_apply(const X* x, const float* scale, const float* bias, const float* offset, const S* shift, Y* y, const float* mean, const float* inverse) {
    typedef Cut<V, P, C, G, CHUNKS, ROWS> K;
    if (!K::active()) return;
    const u32 column = K::lane() * V, sample = K::second_sample();
    float center[V], factor[V], term[V], after[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
        const u32 c = column + i, g = sample * G + c / K::WIDTH;
        center[i] = mean[g] - (OFFSET ? offset[c] : 0.0f);
        factor[i] = inverse[g] * scale[c];
        term[i] = bias[c];
        after[i] = SHIFT ? real(shift[sample * C + c]) : 0.0f;
    }
    const size_t base = (size_t)sample * P * C + column;
#pragma unroll 4
    for (u32 r = K::first() + K::row(); r < K::end(); r += ROWS) {
        float value[V];
        load<V>(x + base + (size_t)r * C, value);
#pragma unroll
        for (int i = 0; i < V; ++i) value[i] = activate<A>((value[i] - center[i]) * factor[i] + term[i]) + after[i];
        store<V>(y + base + (size_t)r * C, value);
    }
}

// The sums of the backward pass per channel: d = dy slope, d z, z and dy with z = x - center. Then the terms that each
// group's dx subtracts, and each sample's contribution to the parameters' gradients in `totals` [B, 3, C].
template <class X, class D, class Y, class S, class T, class R, int V, u32 P, u32 C, u32 G, u32 CHUNKS, int ROWS, int A, bool OFFSET, bool SHIFT>
DEVICE bool norm_backward_sums(const X* x, const float* scale, const float* bias, const float* mean, const float* inverse, const float* offset,
    const D* dy, T* dshift, float* coefficients, float* totals, float* partial, u32* tickets) {
    typedef Cut<V, P, C, G, CHUNKS, ROWS> K;
    __shared__ alignas(32) float shared[2 * K::THREADS * V];
    __shared__ float sums[4 * C];
    float part[4][V] = {};
    if (K::active()) {
        const u32 column = K::lane() * V;
        float center[V], factor[V], term[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const u32 c = column + i, g = blockIdx.y * G + c / K::WIDTH;
            center[i] = mean[g] - (OFFSET ? offset[c] : 0.0f);
            factor[i] = inverse[g] * scale[c];
            term[i] = bias[c];
        }
        const size_t base = (size_t)blockIdx.y * P * C + column;
#pragma unroll 2
        for (u32 r = K::first() + K::row(); r < K::end(); r += ROWS) {
            float value[V], slope[V];
            load<V>(x + base + (size_t)r * C, value);
            load<V>(dy + base + (size_t)r * C, slope);
#pragma unroll
            for (int i = 0; i < V; ++i) {
                const float z = value[i] - center[i];
                const float d = slope[i] * activate_slope<A>(z * factor[i] + term[i]);
                part[0][i] += d;
                part[1][i] += d * z;
                if (OFFSET) part[2][i] += z;
                if (SHIFT) part[3][i] += slope[i];
            }
        }
    }
    fold_rows<4, V, K, C, ROWS>(part, shared, sums);
    if (!fold_chunks<4, C, CHUNKS>(sums, partial, tickets)) return false;
    __shared__ float constants[G], slopes[G];
    for (u32 g = threadIdx.x; g < G; g += blockDim.x) {
        const double inverted = (double)inverse[blockIdx.y * G + g], count = (double)P * (double)K::WIDTH;
        double constant = 0.0, slope = 0.0;
        for (u32 c = g * K::WIDTH; c < (g + 1) * K::WIDTH; ++c) {
            constant += (double)scale[c] * (double)sums[c];
            slope += (double)scale[c] * (double)sums[C + c];
        }
        constants[g] = (float)(inverted * constant / count);
        slopes[g] = (float)(inverted * inverted * inverted * slope / count);
        coefficients[(blockIdx.y * 2) * G + g] = constants[g];
        coefficients[(blockIdx.y * 2 + 1) * G + g] = slopes[g];
    }
    __syncthreads();
    for (u32 c = threadIdx.x; c < C; c += blockDim.x) {
        const u32 g = c / K::WIDTH;
        const float inverted = inverse[blockIdx.y * G + g];
        float* total = totals + (size_t)blockIdx.y * 3 * C;
        total[c] = inverted * sums[C + c];
        total[C + c] = sums[c];
        total[2 * C + c] = inverted * scale[c] * sums[c] - (float)P * constants[g] - slopes[g] * sums[2 * C + c];
        if (SHIFT) dshift[blockIdx.y * C + c] = Cast<T>::of(sums[3 * C + c]);
    }
    __syncthreads();
    return true;
}

// With AGAIN the forward result is written too.
template <class X, class D, class Y, class S, class T, class R, int V, u32 P, u32 C, u32 G, u32 CHUNKS, int ROWS, int A, bool OFFSET, bool SHIFT, bool AGAIN>
DEVICE void norm_backward_apply(const X* x, const float* scale, const float* bias, const float* mean, const float* inverse, const float* offset,
    const D* dy, const S* shift, Y* dx, R* again, const float* coefficients) {
    typedef Cut<V, P, C, G, CHUNKS, ROWS> K;
    if (!K::active()) return;
    const u32 column = K::lane() * V, sample = K::second_sample();
    float center[V], factor[V], term[V], after[V], constant[V], steep[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
        const u32 c = column + i, g = c / K::WIDTH;
        center[i] = mean[sample * G + g] - (OFFSET ? offset[c] : 0.0f);
        factor[i] = inverse[sample * G + g] * scale[c];
        term[i] = bias[c];
        after[i] = AGAIN && SHIFT ? real(shift[sample * C + c]) : 0.0f;
        constant[i] = coefficients[(sample * 2) * G + g];
        steep[i] = coefficients[(sample * 2 + 1) * G + g];
    }
    const size_t base = (size_t)sample * P * C + column;
#pragma unroll 2
    for (u32 r = K::first() + K::row(); r < K::end(); r += ROWS) {
        float value[V], slope[V];
        load<V>(x + base + (size_t)r * C, value);
        load<V>(dy + base + (size_t)r * C, slope);
        if (AGAIN) {
            float result[V];
#pragma unroll
            for (int i = 0; i < V; ++i) result[i] = activate<A>((value[i] - center[i]) * factor[i] + term[i]) + after[i];
            store<V>(again + base + (size_t)r * C, result);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float z = value[i] - center[i];
            const float d = slope[i] * activate_slope<A>(z * factor[i] + term[i]);
            value[i] = d * factor[i] - constant[i] - z * steep[i];
        }
        store<V>(dx + base + (size_t)r * C, value);
    }
}

// Sums of the samples' contributions: [BATCH, 3, C] -> three times [C]. One warp per number.
template <u32 BATCH, u32 C, bool OFFSET> DEVICE void norm_totals(const float* totals, float* dscale, float* dbias, float* doffset) {
    __shared__ float shared[256];
    const u32 column = blockIdx.x * 32 + threadIdx.x % 32, row = threadIdx.x / 32;
    float sum = 0.0f;
    if (column < 3 * C)
        for (u32 b = row; b < BATCH; b += 8) sum += totals[(size_t)b * 3 * C + column];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (row != 0 || column >= 3 * C) return;
    for (int r = 1; r < 8; ++r) sum += shared[r * 32 + threadIdx.x];
    const u32 which = column / C, c = column % C;
    if (which == 0) dscale[c] = sum;
    if (which == 1) dbias[c] = sum;
    if (OFFSET && which == 2) doffset[c] = sum;
}
