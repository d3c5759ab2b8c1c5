// Group normalisation of a one-row convolution's result before it leaves shared memory. A block has whole samples and
// whole groups of 64 channels.

// y = activation(((v + offset) - mean) inverse scale + bias) + shift with v = conv(x, w), which is stored too.
template <class P, class E, u32 GROUPS, int A, bool OFFSET, bool SHIFT>
DEVICE void conv_row_norm(const E* x, const E* w, const float* scale, const float* bias, const float* offset, const E* shift, E* y, float* mean, float* inverse,
    E* kept, float epsilon, char* shared) {
    constexpr u32 T = P::T, WIDTH = P::N / GROUPS, INSIDE = 64 / WIDTH, SAMPLES = P::ROWS_OF_BLOCK / T, WARPS = P::THREADS / 32;
    static_assert(P::ROWS_OF_BLOCK % T == 0 && 32 % WIDTH == 0, "whole samples, and one channel a lane");
    __shared__ float centers[SAMPLES * INSIDE], factors[SAMPLES * INSIDE];
    const float* result = P().product(x, w, shared);
    const u32 first_sample = blockIdx.x * SAMPLES, first_channel = blockIdx.y * 64;
    for (u32 pair = threadIdx.x / 32; pair < SAMPLES * INSIDE; pair += WARPS) {
        const u32 sample = first_sample + pair / INSIDE, lane = threadIdx.x % 32;
        const u32 inside = pair % INSIDE * WIDTH, channel = first_channel + inside + lane % WIDTH;
        if (sample >= P::SAMPLES || channel >= P::N) continue;
        const float before = OFFSET ? offset[channel] : 0.0f;
        const float* from = result + pair / INSIDE * T * P::PITCH + inside + lane % WIDTH;
        float sum = 0.0f, squares = 0.0f;
        // Each lane has T WIDTH / 32 of the group's numbers.
#pragma unroll 4
        for (u32 row = lane / WIDTH; row < T; row += 32 / WIDTH) sum += from[row * P::PITCH] + before;
        const float center = warp_sum(sum) / (float)(T * WIDTH);
#pragma unroll 4
        for (u32 row = lane / WIDTH; row < T; row += 32 / WIDTH) {
            const float d = from[row * P::PITCH] + before - center;
            squares += d * d;
        }
        const float factor = 1.0f / sqrtf(warp_sum(squares) / (float)(T * WIDTH) + epsilon);
        if (lane == 0) {
            const u32 to = sample * GROUPS + channel / WIDTH;
            centers[pair] = mean[to] = center;
            factors[pair] = inverse[to] = factor;
        }
    }
    __syncthreads();
    const u32 inside = threadIdx.x % 16 * 4, channel = first_channel + inside;
    if (channel >= P::N) return;
    float slope[4], term[4], before[4] = {};
    load<4>(scale + channel, slope);
    load<4>(bias + channel, term);
    if (OFFSET) load<4>(offset + channel, before);
    for (u32 row = threadIdx.x / 16; row < P::ROWS_OF_BLOCK; row += P::THREADS / 16) {
        const u32 sample = first_sample + row / T;
        if (sample >= P::SAMPLES) break;
        float value[4], after[4] = {};
        load<4>(result + row * P::PITCH + inside, value);
        if (SHIFT) load<4>(shift + sample * P::N + channel, after);
        const size_t to = ((size_t)first_sample * T + row) * P::N + channel;
        store<4>(kept + to, value);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 pair = row / T * INSIDE + (inside + i) / WIDTH;
            value[i] = activate<A>((value[i] + before[i] - centers[pair]) * (factors[pair] * slope[i]) + term[i]) + after[i];
        }
        store<4>(y + to, value);
    }
}
