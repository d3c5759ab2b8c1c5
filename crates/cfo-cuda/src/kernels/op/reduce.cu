// Sums over axes of a source: a tensor, or an expression of tensors. The order of additions depends only on shapes.

// [OUTER, REDUCED, KEPT] -> [OUTER, KEPT]. Lanes are along columns, V columns each; rows are divided into CHUNKS parts
// whose sums the last block adds in order.
template <class Source, class Y, int V, int LANES, u32 OUTER, u32 REDUCED, u32 KEPT, u32 CHUNKS>
DEVICE void sum_columns(const Source& x, Y* y, float* partial, u32* tickets) {
    constexpr int ROWS = 256 / LANES;
    constexpr u32 SPAN = (REDUCED + CHUNKS - 1) / CHUNKS;
    __shared__ float shared[256 * V];
    const u32 lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const u32 column = (blockIdx.x * LANES + lane) * V;
    const u32 first = blockIdx.y * SPAN;
    const u32 end = first + SPAN < REDUCED ? first + SPAN : REDUCED;
    float sum[V] = {};
    if (column < KEPT) {
        const size_t at = (size_t)blockIdx.z * REDUCED * KEPT + column;
#pragma unroll 4
        for (u32 r = first + row; r < end; r += ROWS) {
            float value[V];
            x.get(at + (size_t)r * KEPT, value);
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += value[i];
        }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) shared[threadIdx.x * V + i] = sum[i];
    __syncthreads();
    for (int half = ROWS / 2; half > 0; half >>= 1) {
        if (row < half) {
#pragma unroll
            for (int i = 0; i < V; ++i) shared[threadIdx.x * V + i] += shared[(threadIdx.x + half * LANES) * V + i];
        }
        __syncthreads();
    }
    const bool writes = row == 0 && column < KEPT;
    if (CHUNKS == 1) {
        if (writes) store<V>(y + (size_t)blockIdx.z * KEPT + column, shared + threadIdx.x * V);
        return;
    }
    if (writes) store<V>(partial + ((size_t)blockIdx.z * CHUNKS + blockIdx.y) * KEPT + column, shared + threadIdx.x * V);
    if (!last_block(tickets + blockIdx.z * gridDim.x + blockIdx.x, CHUNKS)) return;
    // All threads of the block take part in the last additions.
    float total[V] = {};
    if (column < KEPT) {
        for (u32 chunk = row; chunk < CHUNKS; chunk += ROWS) {
            float value[V];
            load<V>(partial + ((size_t)blockIdx.z * CHUNKS + chunk) * KEPT + column, value);
#pragma unroll
            for (int i = 0; i < V; ++i) total[i] += value[i];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; ++i) shared[threadIdx.x * V + i] = total[i];
    __syncthreads();
    for (int half = ROWS / 2; half > 0; half >>= 1) {
        if (row < half) {
#pragma unroll
            for (int i = 0; i < V; ++i) shared[threadIdx.x * V + i] += shared[(threadIdx.x + half * LANES) * V + i];
        }
        __syncthreads();
    }
    if (writes) store<V>(y + (size_t)blockIdx.z * KEPT + column, shared + threadIdx.x * V);
}

// [KEPT, REDUCED] -> [KEPT], one warp per row.
template <class Source, class Y, u32 KEPT, u32 REDUCED> DEVICE void sum_short_rows(const Source& x, Y* y) {
    const u32 row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= KEPT) return;
    float sum = 0.0f;
    for (u32 i = threadIdx.x % 32; i < REDUCED; i += 32) {
        float value[1];
        x.get((size_t)row * REDUCED + i, value);
        sum += value[0];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) y[row] = Cast<Y>::of(sum);
}

// [KEPT, REDUCED] -> [KEPT], CHUNKS blocks per row.
template <class Source, class Y, int V, u32 KEPT, u32 REDUCED, u32 CHUNKS>
DEVICE void sum_rows(const Source& x, Y* y, float* partial, u32* tickets) {
    constexpr u32 PACKS = REDUCED / V;
    constexpr u32 SPAN = (PACKS + CHUNKS - 1) / CHUNKS;
    const u32 first = blockIdx.x * SPAN;
    const u32 end = first + SPAN < PACKS ? first + SPAN : PACKS;
    const size_t at = (size_t)blockIdx.y * REDUCED;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 i = first + threadIdx.x; i < end; i += 256) {
        float value[V];
        x.get(at + (size_t)i * V, value);
#pragma unroll
        for (int j = 0; j < V; ++j) sum += value[j];
    }
    sum = block_sum<256>(sum);
    if (CHUNKS == 1) {
        if (threadIdx.x == 0) y[blockIdx.y] = Cast<Y>::of(sum);
        return;
    }
    if (threadIdx.x == 0) partial[blockIdx.y * CHUNKS + blockIdx.x] = sum;
    if (!last_block(tickets + blockIdx.y, CHUNKS)) return;
    float total = 0.0f;
    for (u32 i = threadIdx.x; i < CHUNKS; i += 256) total += __ldcg(partial + blockIdx.y * CHUNKS + i);
    total = block_sum<256>(total);
    if (threadIdx.x == 0) y[blockIdx.y] = Cast<Y>::of(total);
}
