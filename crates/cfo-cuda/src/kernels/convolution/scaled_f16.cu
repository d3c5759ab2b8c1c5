// f16 operands of convolutions: they have as many significant bits as tf32, and are scaled by a power of two.

// A block's largest magnitude as bits, which have the order of the numbers, with infinity and NaN above all.
DEVICE u32 block_maximum(u32 x) {
    __shared__ u32 parts[8];
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) x = max(x, __shfl_xor_sync(0xffffffffu, x, offset));
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) x = max(x, parts[i]);
    return x;
}

// The inverse of the power of two that scales a magnitude to [2^14, 2^15). NaN if there is none, so that the result is
// NaN too. Both powers are normal numbers.
DEVICE float inverse_scale(u32 magnitude) {
    if (magnitude == 0u) return 1.0f;
    if (magnitude >= 0x7f800000u) return __uint_as_float(0x7fc00000u);
    const int exponent = (int)(magnitude >> 23) - 14;
    return __uint_as_float((u32)(exponent < 1 ? 1 : exponent) << 23);
}

// The scale of the numbers that `source` reads, V at a time.
template <int V, u64 COUNT, class Source> DEVICE void f16_scale(Source source, float* inverse, u32* partial, u32* ticket) {
    u32 largest = 0u;
#pragma unroll 4
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < COUNT / V; at += (u64)gridDim.x * 256) {
        float value[V];
        source(at, value);
#pragma unroll
        for (int i = 0; i < V; ++i) largest = max(largest, __float_as_uint(value[i]) & 0x7fffffffu);
    }
    largest = block_maximum(largest);
    if (threadIdx.x == 0) partial[blockIdx.x] = largest;
    if (!last_block(ticket, gridDim.x)) return;
    largest = 0u;
    for (u32 block = threadIdx.x; block < gridDim.x; block += 256) largest = max(largest, __ldcg(partial + block));
    largest = block_maximum(largest);
    if (threadIdx.x == 0) *inverse = inverse_scale(largest);
}

// The largest magnitude of COUNT numbers, for one block.
template <u32 COUNT> DEVICE float largest_of(const float* x) {
    u32 largest = 0u;
#pragma unroll 16
    for (u32 at = threadIdx.x; at < COUNT; at += 256) largest = max(largest, __float_as_uint(x[at]) & 0x7fffffffu);
    return __uint_as_float(block_maximum(largest));
}

// The scale of a group norm's result. A deviation is at most `root` times the group's standard deviation, activations
// do not enlarge values, and a factor of two allows for rounding.
template <u32 SCALES, u32 BIASES, u32 SHIFTS>
DEVICE void f16_bound(const float* scale, const float* bias, const float* shift, float root, float* inverse) {
    const float bound = root * largest_of<SCALES>(scale) + largest_of<BIASES>(bias) + largest_of<SHIFTS>(shift);
    if (threadIdx.x == 0) *inverse = inverse_scale(__float_as_uint(bound));
}

// The power of two itself.
DEVICE float scale_of(float inverse) {
    return inverse == inverse ? __uint_as_float((254u << 23) - __float_as_uint(inverse)) : inverse;
}

template <int V, u64 COUNT, class Source> DEVICE void f16_round(Source source, fp16* y, const float* inverse) {
    const float scale = scale_of(*inverse);
#pragma unroll 2
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < COUNT / V; at += (u64)gridDim.x * 256) {
        float value[V];
        source(at, value);
#pragma unroll
        for (int i = 0; i < V; ++i) value[i] *= scale;
        store<V>(y + at * V, value);
    }
}

// A product of two f16 operands in single precision: the library's result, times both inverse scales and the power of
// two that was divided out.
template <u64 COUNT> DEVICE void f16_expand(const fp16* x, float* y, const float* first, const float* second, double power) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    y[at] = (float)((double)real(x[at]) * ((double)*first * (double)*second * power));
}
