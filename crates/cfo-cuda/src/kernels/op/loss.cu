// The mean squared error: partial sums, added in order by the last block.
template <class A, class B, class Y, int V, u64 COUNT, u32 BLOCKS>
DEVICE void mean_squared_error(const A* a, const B* b, Y* y, float* partial, u32* ticket) {
    constexpr u64 PACKS = COUNT / V;
    float sum = 0.0f;
#pragma unroll 4
    for (u64 i = blockIdx.x * 256 + threadIdx.x; i < PACKS; i += BLOCKS * 256) {
        float left[V], right[V];
        load<V>(a + i * V, left);
        load<V>(b + i * V, right);
#pragma unroll
        for (int j = 0; j < V; ++j) {
            float difference = left[j] - right[j];
            sum += difference * difference;
        }
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    if (BLOCKS > 1 && !last_block(ticket, BLOCKS)) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (u32 i = 0; i < BLOCKS; ++i) total += (double)__ldcg(partial + i);
        *y = Cast<Y>::of((float)(total / (double)COUNT));
    }
}
