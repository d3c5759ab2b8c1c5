// Work on many tensors in one launch: each block processes one piece of one tensor.

struct Piece {
    u64 tensor;
    u64 first;
};

struct Slot {
    u64 parameter, first, second, average, gradient;
    u64 count;
    u64 half_gradient; // whether the gradient is bf16
};

#define PIECE 4096

DEVICE float gradient_at(const Slot& slot, u64 i) {
    return slot.half_gradient ? real(((const bf16*)slot.gradient)[i]) : ((const float*)slot.gradient)[i];
}

// Root of the sum of squares of all gradients.
DEVICE void global_norm(const Slot* slots, const Piece* pieces, u32 blocks, float* y, float* partial, u32* ticket) {
    const Piece piece = pieces[blockIdx.x];
    const Slot slot = slots[piece.tensor];
    const u64 end = piece.first + PIECE < slot.count ? piece.first + PIECE : slot.count;
    float sum = 0.0f;
#pragma unroll 4
    for (u64 i = piece.first + threadIdx.x; i < end; i += 256) {
        float g = gradient_at(slot, i);
        sum += g * g;
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    if (!last_block(ticket, blocks)) return;
    double total = 0.0;
    for (u32 i = threadIdx.x; i < blocks; i += 256) total += (double)__ldcg(partial + i);
    __shared__ double parts[256];
    parts[threadIdx.x] = total;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) *y = (float)sqrt(parts[0]);
}

struct Settings {
    double rate, beta1, beta2, epsilon, decay, clip, ema;
    double warmup, total, floor;
    u64 schedule; // 0 constant, 1 cosine, 2 warm-up
};

DEVICE double schedule_factor(const Settings& s, u32 step) {
    double rise = ((double)step + 1.0) / fmax(s.warmup, 1.0);
    if (s.schedule == 0) return 1.0;
    if (s.schedule == 2) return fmin(rise, 1.0);
    if ((double)step < s.warmup) return rise;
    double passed = ((double)step - s.warmup) / fmax(s.total - s.warmup, 1.0);
    return s.floor + (1.0 - s.floor) * 0.5 * (1.0 + cos(3.14159265358979323846 * fmin(passed, 1.0)));
}

template <bool CLIP, bool EMA, bool ADVANCE>
DEVICE void adam(const Slot* slots, const Piece* pieces, const Settings* settings, u32* counter, const float* norm, u32 blocks, u32* ticket) {
    __shared__ float factors[10];
    if (threadIdx.x == 0) {
        const Settings s = *settings;
        const u32 step = *counter;
        const double n = (double)step + 1.0;
        const double rate = s.rate * schedule_factor(s, step);
        double gradient = 1.0;
        if (CLIP) {
            gradient = fmin(s.clip / (double)*norm, 1.0);
            if (gradient != gradient) gradient = 1.0;
        }
        factors[0] = (float)s.beta1;
        factors[1] = (float)s.beta2;
        factors[2] = (float)(1.0 - s.beta1);
        factors[3] = (float)(1.0 - s.beta2);
        factors[4] = (float)(rate / (1.0 - pow(s.beta1, n)));
        factors[5] = (float)(1.0 / sqrt(1.0 - pow(s.beta2, n)));
        factors[6] = (float)s.epsilon;
        factors[7] = (float)(1.0 - rate * s.decay);
        factors[8] = (float)gradient;
        factors[9] = (float)s.ema;
    }
    __syncthreads();
    const Piece piece = pieces[blockIdx.x];
    const Slot slot = slots[piece.tensor];
    const u64 end = piece.first + PIECE < slot.count ? piece.first + PIECE : slot.count;
    float* parameter = (float*)slot.parameter;
    float* first = (float*)slot.first;
    float* second = (float*)slot.second;
    float* average = (float*)slot.average;
#pragma unroll 4
    for (u64 i = piece.first + threadIdx.x; i < end; i += 256) {
        float g = factors[8] * gradient_at(slot, i);
        float m = factors[0] * first[i] + factors[2] * g;
        float v = factors[1] * second[i] + factors[3] * g * g;
        float p = factors[7] * parameter[i] - factors[4] * m / (factors[5] * sqrtf(v) + factors[6]);
        first[i] = m;
        second[i] = v;
        parameter[i] = p;
        if (EMA) average[i] = factors[9] * average[i] + (1.0f - factors[9]) * p;
    }
    if (ADVANCE && last_block(ticket, blocks) && threadIdx.x == 0) *counter += 1u;
}

// Single-precision tensors rounded to bf16 copies.
DEVICE void round_copies(const Slot* slots, const Piece* pieces) {
    const Piece piece = pieces[blockIdx.x];
    const Slot slot = slots[piece.tensor];
    const u64 end = piece.first + PIECE < slot.count ? piece.first + PIECE : slot.count;
    const float* from = (const float*)slot.parameter;
    bf16* to = (bf16*)slot.first;
#pragma unroll 4
    for (u64 i = piece.first + threadIdx.x; i < end; i += 256) to[i] = Cast<bf16>::of(from[i]);
}
