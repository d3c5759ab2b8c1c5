// Gradients of weights, y = a' b over many terms, with Hopper's warpgroup instructions. A block computes 128 rows and
// 128 columns of one chunk of terms; a second kernel adds the chunks in order.

#define ACROSS 128

// One buffer of b, split into two parts in the groups of 8 columns x 4 terms that the cores read. A warp processes and
// sums 16 columns.
DEVICE void gradient_split(const float* b, float* high, float* low, float* total) {
    const u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < TERMS / 8; ++s) {
        float value[4];
        columns_of<ACROSS, false>(b, 16 * warp, s, value);
        total[0] += value[0] + value[1];
        total[1] += value[2] + value[3];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 at = ((2 * s + i % 2) * (ACROSS / 8) + 2 * warp + i / 2) * 32 + g * 4 + t;
            u32 upper, lower;
            halves(value[i], upper, lower);
            high[at] = __uint_as_float(upper), low[at] = __uint_as_float(lower);
        }
    }
}

// One buffer of a in two parts: 16 rows per warp, two per lane.
DEVICE void gradient_rows(const float* a, u32 row, u32 (*upper)[4], u32 (*lower)[4]) {
#pragma unroll
    for (int s = 0; s < TERMS / 8; ++s) {
        float value[4];
        rows_of<ACROSS, false>(a, row, s, value);
#pragma unroll
        for (int i = 0; i < 4; ++i) halves(value[i], upper[s][i], lower[s][i]);
    }
}

// Starts the products of one buffer, the small ones first.
DEVICE void gradient_begin(float* part, u32 (*upper)[4], u32 (*lower)[4], const float* high, const float* low) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int s = 0; s < TERMS / 8; ++s) multiply_group<ACROSS>(part, lower[s], stay_matrix<ACROSS>(high, s), s > 0);
#pragma unroll
    for (int s = 0; s < TERMS / 8; ++s) multiply_group<ACROSS>(part, upper[s], stay_matrix<ACROSS>(low, s), 1);
#pragma unroll
    for (int s = 0; s < TERMS / 8; ++s) multiply_group<ACROSS>(part, upper[s], stay_matrix<ACROSS>(high, s), 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Chunks of terms are written to partial [CHUNKS][batch][ROWS][COLUMNS], and the sums of b's columns to
// [CHUNKS][COLUMNS] after that.
template <class S, class A, class B, bool SUMS> DEVICE void wgrad_product(Operands x) {
    constexpr int STAGES = 3, RAW = 2 * ACROSS * TERMS, HALF = ACROSS * TERMS;
    constexpr u32 BUFFERS = S::SPAN / TERMS;
    extern __shared__ float4 shared[];
    float* const split = reinterpret_cast<float*>(shared);
    float* const raw = split + 4 * HALF;
    const u32 chunk = blockIdx.z % S::CHUNKS, batch = blockIdx.z / S::CHUNKS, batches = gridDim.z / S::CHUNKS;
    const u32 start = chunk * S::SPAN, end = start + S::SPAN < S::INNER ? start + S::SPAN : S::INNER;
    const u32 first_row = blockIdx.y * ACROSS, first_column = blockIdx.x * ACROSS;
    x.a += (size_t)batch * A::BATCH, x.b += (size_t)batch * B::BATCH;
    auto fetch = [&](u32 buffer) {
        float* to = raw + buffer % STAGES * RAW;
        if (buffer < BUFFERS) {
            bring<A, 256, ACROSS, false>(to, x.a, first_row, S::ROWS, start + buffer * TERMS, end);
            bring<B, 256, ACROSS, true>(to + HALF, x.b, first_column, S::COLUMNS, start + buffer * TERMS, end);
        }
        commit_copies();
    };
    fetch(0), fetch(1), fetch(2);
    const u32 row = threadIdx.x / 32 * 16;
    float sum[ACROSS / 2] = {}, part[ACROSS / 2], total[2] = {};
    u32 upper[TERMS / 8][4], lower[TERMS / 8][4];
    wait_copies<2>();
    __syncthreads();
    gradient_split(raw + HALF, split, split + HALF, total);
    gradient_rows(raw, row, upper, lower);
#pragma unroll 1
    for (u32 buffer = 0; buffer < BUFFERS; ++buffer) {
        const float* now = split + buffer % 2 * 2 * HALF;
        wait_copies<1>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        fetch(buffer + 3);
        gradient_begin(part, upper, lower, now, now + HALF);
        u32 next_upper[TERMS / 8][4], next_lower[TERMS / 8][4];
        if (buffer + 1 < BUFFERS) {
            const float* from = raw + (buffer + 1) % STAGES * RAW;
            float* to = split + (buffer + 1) % 2 * 2 * HALF;
            gradient_split(from + HALF, to, to + HALF, total);
            gradient_rows(from, row, next_upper, next_lower);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        settle<ACROSS / 2>(part);
        // The cores may still read these: the next ones must not use their registers earlier.
#pragma unroll
        for (int i = 0; i < TERMS / 2; ++i) asm volatile("" ::"r"(upper[i / 4][i % 4]), "r"(lower[i / 4][i % 4]) : "memory");
#pragma unroll
        for (int i = 0; i < ACROSS / 2; ++i) sum[i] += part[i];
#pragma unroll
        for (int i = 0; i < TERMS / 2; ++i) upper[i / 4][i % 4] = next_upper[i / 4][i % 4], lower[i / 4][i % 4] = next_lower[i / 4][i % 4];
    }
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float* const to = x.partial + ((size_t)chunk * batches + batch) * S::ROWS * S::COLUMNS;
#pragma unroll
    for (int i = 0; i < ACROSS / 8; ++i) {
        const int p = i / 2, half = i % 2;
        const u32 r = first_row + row + 2 * g + half, c = first_column + 16 * p + 4 * t;
        if (r >= S::ROWS || c >= S::COLUMNS) continue;
        float value[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            value[j] = sum[8 * p + j % 2 * 4 + 2 * half + j / 2];
            if (!finite(value[j])) value[j] = plain_sum<A, B>(x.a, x.b, r, c + j, start, end);
        }
        store<4>(to + (size_t)r * S::COLUMNS + c, value);
    }
    if (!SUMS || blockIdx.y > 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 1);
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 2);
        const u32 c = first_column + row + 2 * g + i;
        if (t == 0 && c < S::COLUMNS) x.partial[(size_t)S::CHUNKS * batches * S::ROWS * S::COLUMNS + (size_t)chunk * S::COLUMNS + c] = total[i];
    }
}

// y [COUNT] and sums [EXTRA] from the chunks; 8 threads share four neighbours.
template <u32 CHUNKS, u32 COUNT, u32 EXTRA> DEVICE void wgrad_gather(const float* partial, float* y, float* sums) {
    __shared__ alignas(16) float shared[8][32][4];
    const u32 lane = threadIdx.x % 32, share = threadIdx.x / 32;
    const u32 at = (blockIdx.x * 32 + lane) * 4;
    const bool main = at < COUNT, there = at < COUNT + EXTRA;
    const float* from = partial + (main ? at : (size_t)CHUNKS * COUNT + at - COUNT);
    float sum[4] = {};
    if (there) {
#pragma unroll 8
        for (u32 chunk = share; chunk < CHUNKS; chunk += 8) {
            float value[4];
            load<4>(from + (size_t)chunk * (main ? COUNT : EXTRA), value);
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[i] += value[i];
        }
    }
    store<4>(shared[share][lane], sum);
    __syncthreads();
    if (share > 0 || !there) return;
#pragma unroll
    for (int other = 1; other < 8; ++other) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += shared[other][lane][i];
    }
    store<4>(main ? y + at : sums + at - COUNT, sum);
}
