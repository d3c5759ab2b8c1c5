// The batch sampler. Sample i of step n, numbered over all ranks, uses the counter [i, n, stream, 0]; its noise the
// counters [block, n, stream, i + 1]. Weights are computed in double precision as in cfo-numerics.

#define MAX_WEIGHTS 10
#define MAX_SMOOTHNESS 8

struct Weights {
    double value[MAX_WEIGHTS], velocity[MAX_WEIGHTS];
    double tau, length;
    u32 first, count;
};

DEVICE double power(double base, u32 exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result;
}

DEVICE double binomial(int n, int k) {
    double product = 1.0;
    for (int i = 0; i < k; ++i) product = product * (double)(n - i) / (double)(i + 1);
    return rint(product);
}

// Hermite basis polynomials of one side and their derivatives.
DEVICE void hermite_side(int smoothness, double tau, double sigma, double* value, double* rate) {
    if (smoothness == 1) {
        value[0] = sigma * sigma * (1.0 + 2.0 * tau);
        value[1] = tau * sigma * sigma;
        rate[0] = -6.0 * tau * sigma;
        rate[1] = sigma * (1.0 - 3.0 * tau);
    } else if (smoothness == 2) {
        double square = sigma * sigma;
        value[0] = square * sigma * (1.0 + 3.0 * tau + 6.0 * tau * tau);
        value[1] = square * sigma * tau * (1.0 + 3.0 * tau);
        value[2] = 0.5 * square * sigma * tau * tau;
        rate[0] = -30.0 * square * tau * tau;
        rate[1] = square * (1.0 - 3.0 * tau) * (1.0 + 5.0 * tau);
        rate[2] = 0.5 * square * tau * (2.0 - 5.0 * tau);
    } else {
        double fall = power(sigma, smoothness), rise = 1.0, rise_rate = 0.0;
        for (int k = 0; k <= smoothness; ++k) {
            double sum = 0.0, sum_rate = 0.0;
            for (int j = smoothness - k; j >= 0; --j) {
                sum_rate = sum_rate * tau + sum;
                sum = sum * tau + binomial(smoothness + j, j);
            }
            value[k] = rise * fall * sigma * sum;
            rate[k] = fall * (rise_rate * sigma * sum - rise * (double)(smoothness + 1) * sum + rise * sigma * sum_rate);
            rise_rate = rise;
            rise *= tau / (double)(k + 1);
        }
    }
}

// Weights of slope and curvature on three nodes at one of them, in units of the segment.
DEVICE void three_points(const double* nodes, int at, double length, double* slope, double* bend) {
    double unit = 1.0 / length;
    double near = (nodes[1] - nodes[0]) * unit, far = (nodes[2] - nodes[1]) * unit, both = (nodes[2] - nodes[0]) * unit;
    double share0 = 1.0 / (near * both), share1 = -1.0 / (near * far), share2 = 1.0 / (both * far);
    double offset0 = at == 0 ? 0.0 : at == 1 ? near : both;
    double offset1 = at == 0 ? -near : at == 1 ? 0.0 : far;
    double offset2 = at == 0 ? -both : at == 1 ? -far : 0.0;
    slope[0] = (offset1 + offset2) * share0;
    slope[1] = (offset0 + offset2) * share1;
    slope[2] = (offset0 + offset1) * share2;
    bend[0] = 2.0 * share0;
    bend[1] = 2.0 * share1;
    bend[2] = 2.0 * share2;
}

// Fornberg's recurrence: weights of derivatives 0 ..= order at 0, a row of `count` weights per order.
DEVICE void fornberg(const double* nodes, int count, int order, double* out) {
    for (int i = 0; i < (order + 1) * count; ++i) out[i] = 0.0;
    double widest = 0.0;
    for (int i = 0; i < count; ++i) widest = fmax(widest, fabs(nodes[i]));
    double scale = widest == 0.0 ? 1.0 : exp2(-rint(log2(widest)));
    out[0] = 1.0;
    double product_before = 1.0, offset_before = nodes[0] * scale;
    for (int i = 1; i < count; ++i) {
        double offset = nodes[i] * scale, product = 1.0;
        int top = order < i ? order : i;
        for (int j = 0; j < i; ++j) product *= (nodes[i] - nodes[j]) * scale;
        for (int k = top; k >= 0; --k) {
            double below = k == 0 ? 0.0 : (double)k * out[(k - 1) * count + i - 1];
            out[k * count + i] = product_before / product * (below - offset_before * out[k * count + i - 1]);
        }
        for (int j = 0; j < i; ++j) {
            double gap = (nodes[i] - nodes[j]) * scale;
            for (int k = top; k >= 0; --k) {
                double below = k == 0 ? 0.0 : (double)k * out[(k - 1) * count + j];
                out[k * count + j] = (offset * out[k * count + j] - below) / gap;
            }
        }
        product_before = product;
        offset_before = offset;
    }
    double factor = 1.0;
    for (int k = 1; k <= order; ++k) {
        factor *= scale;
        for (int j = 0; j < count; ++j) out[k * count + j] *= factor;
    }
}

DEVICE u32 window_start(u32 knot, u32 width, u32 snapshots) {
    u32 back = (width - 1) / 2;
    u32 first = knot > back ? knot - back : 0;
    return first < snapshots - width ? first : snapshots - width;
}

template <int SMOOTHNESS, int STENCIL> DEVICE void path_weights(const double* times, u32 count, double t, Weights& w) {
    for (int i = 0; i < MAX_WEIGHTS; ++i) w.value[i] = w.velocity[i] = 0.0;
    if (count == 1) {
        w.first = 0;
        w.count = 1;
        w.tau = 0.0;
        w.length = 1.0 / 0.0;
        w.value[0] = 1.0;
        return;
    }
    u32 low = 1, high = count - 1;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (times[middle] <= t) low = middle + 1; else high = middle;
    }
    const u32 index = low - 1;
    const double length = times[index + 1] - times[index], tau = (t - times[index]) / length;
    w.tau = tau;
    w.length = length;
    u32 width = STENCIL < count ? STENCIL : count;
    int estimated = count <= 2 ? 0 : (int)width - 1;
    const int smoothness = SMOOTHNESS < estimated ? SMOOTHNESS : estimated;
    if (smoothness == 0) {
        w.first = index;
        w.count = 2;
        w.value[0] = 1.0 - tau;
        w.value[1] = tau;
        w.velocity[0] = -1.0 / length;
        w.velocity[1] = 1.0 / length;
        return;
    }
    w.first = window_start(index, width, count);
    w.count = window_start(index + 1, width, count) + width - w.first;
    for (int side = 0; side < 2; ++side) {
        double value[SMOOTHNESS + 1], rate[SMOOTHNESS + 1];
        hermite_side(smoothness, side == 0 ? tau : 1.0 - tau, side == 0 ? 1.0 - tau : tau, value, rate);
        if (side == 1) {
            for (int k = 0; k <= smoothness; ++k) {
                if (k % 2 == 1) value[k] = -value[k]; else rate[k] = -rate[k];
            }
        }
        const u32 knot = index + side, start = window_start(knot, width, count), shift = start - w.first;
        w.value[knot - w.first] += value[0];
        w.velocity[knot - w.first] += rate[0];
        if (width == 3) {
            double slope[3], bend[3];
            three_points(times + start, (int)(knot - start), length, slope, bend);
            for (int j = 0; j < 3; ++j) {
                w.value[shift + j] += value[1] * slope[j];
                w.velocity[shift + j] += rate[1] * slope[j];
                if (SMOOTHNESS >= 2 && smoothness == 2) {
                    w.value[shift + j] += value[SMOOTHNESS >= 2 ? 2 : 0] * bend[j];
                    w.velocity[shift + j] += rate[SMOOTHNESS >= 2 ? 2 : 0] * bend[j];
                }
            }
        } else {
            double nodes[STENCIL], table[STENCIL * (SMOOTHNESS + 1)];
            for (u32 j = 0; j < width; ++j) nodes[j] = (times[start + j] - times[knot]) / length;
            fornberg(nodes, (int)width, smoothness, table);
            for (int k = 1; k <= smoothness; ++k) {
                for (u32 j = 0; j < width; ++j) {
                    w.value[shift + j] += value[k] * table[k * width + j];
                    w.velocity[shift + j] += rate[k] * table[k * width + j];
                }
            }
        }
    }
    for (u32 j = 0; j < w.count; ++j) w.velocity[j] /= length;
}

// Kinds of samples: a pair of neighbours, or a point of the path, uniformly in time, per interval or at snapshots only.
enum Draws { PAIR, TIME, INTERVAL, SNAPSHOT };

// Data of a sample that are common to the whole field.
struct Drawn {
    float value[MAX_WEIGHTS], velocity[MAX_WEIGHTS];
    float time, gamma, rate;
    u32 trajectory, count;
    u64 row;
};

template <int SMOOTHNESS, int STENCIL, Draws DRAWS>
DEVICE void draw(u32 sample, const double* times, const u32* offsets, u32 trajectories, u32 step, u32 stream, u32 key0, u32 key1,
    double amplitude, u32 exponent, double decay, Drawn& drawn) {
    u32 words[4];
    philox(sample, step, stream, 0, key0, key1, words);
    drawn.trajectory = scaled(words[0], trajectories);
    const u32 first = offsets[drawn.trajectory], snapshots = offsets[drawn.trajectory + 1] - first;
    if (DRAWS == PAIR) {
        const u32 k = scaled(words[1], snapshots - 1);
        drawn.time = (float)times[first + k];
        drawn.row = first + k;
        drawn.count = 2;
        return;
    }
    times += first;
    const u32 last = snapshots - 1;
    u32 from = 0, to = last;
    if (DRAWS == INTERVAL) {
        from = scaled(words[3], last > 1 ? last : 1);
        to = from + 1 < last ? from + 1 : last;
    } else if (DRAWS == SNAPSHOT) {
        from = to = scaled(words[3], snapshots);
    }
    const double start = times[from], stop = times[to];
    // Not contracted: the host computes the same time, bit for bit, when it gathers the snapshots.
    const double t = __dadd_rn(start, __dmul_rn(__dadd_rn(stop, -start), unit_double(words[1], words[2])));
    Weights w;
    path_weights<SMOOTHNESS, STENCIL>(times, snapshots, t, w);
    drawn.time = (float)t;
    drawn.row = (u64)first + w.first;
    drawn.count = w.count;
    for (int k = 0; k < MAX_WEIGHTS; ++k) {
        drawn.value[k] = (float)w.value[k];
        drawn.velocity[k] = (float)w.velocity[k];
    }
    const double bump = w.tau * (1.0 - w.tau);
    const double gamma = amplitude * power(bump, exponent);
    const double slope = exponent == 0 ? 0.0 : amplitude * ((double)exponent * power(bump, exponent - 1) * (1.0 - 2.0 * w.tau)) / w.length;
    drawn.gamma = (float)gamma;
    drawn.rate = (float)(slope - decay * gamma);
}

// Writes elements 4 block .. 4 block + 4 of one sample's state and target. With STAGED, `values` holds only STAGED rows
// for each sample instead of all snapshots. `number` numbers samples over all ranks that share the batch.
template <class Y, Draws DRAWS, bool NOISE, u32 SIZE, u32 STAGED>
DEVICE void write_block(const Drawn& drawn, u32 sample, u32 number, u32 block, const float* values, Y* state, Y* target, u32 step, u32 stream,
    u32 key0, u32 key1) {
    const float* rows = values + (STAGED ? (u64)sample * STAGED : drawn.row) * SIZE + block * 4;
    float u[4] = {}, v[4] = {};
    const u32 here = SIZE - block * 4 < 4 ? SIZE - block * 4 : 4;
    for (u32 k = 0; k < drawn.count; ++k, rows += SIZE) {
        float x[4] = {};
        if (SIZE % 4 == 0) {
            load<4>(rows, x);
        } else {
            for (u32 i = 0; i < here; ++i) x[i] = rows[i];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (DRAWS == PAIR) {
                (k == 0 ? u : v)[i] = x[i];
            } else {
                u[i] = k == 0 ? drawn.value[k] * x[i] : u[i] + drawn.value[k] * x[i];
                v[i] = k == 0 ? drawn.velocity[k] * x[i] : v[i] + drawn.velocity[k] * x[i];
            }
        }
    }
    if (NOISE && DRAWS != PAIR) {
        u32 words[4];
        float z[4];
        philox(block, step, stream, number + 1, key0, key1, words);
        normals(words, z);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u[i] += drawn.gamma * z[i];
            v[i] += drawn.rate * z[i];
        }
    }
    const u64 to = (u64)sample * SIZE + block * 4;
    if (SIZE % 4 == 0) {
        store<4>(state + to, u);
        store<4>(target + to, v);
    } else {
        for (u32 i = 0; i < here; ++i) {
            state[to + i] = Cast<Y>::of(u[i]);
            target[to + i] = Cast<Y>::of(v[i]);
        }
    }
}

// Large fields: blocks of threads share one sample's weights.
template <class Y, int SMOOTHNESS, int STENCIL, Draws DRAWS, bool NOISE, u32 SIZE, u32 EACH, u32 STAGED>
DEVICE void sample_fields(const float* values, const double* times, const u32* offsets, const u32* counter, float* time, Y* state, Y* target,
    u32* chosen, u32 trajectories, u32 stream, u32 key0, u32 key1, double amplitude, u32 exponent, double decay, u32 first) {
    __shared__ Drawn drawn;
    const u32 sample = blockIdx.y, step = *counter;
    if (threadIdx.x == 0) {
        draw<SMOOTHNESS, STENCIL, DRAWS>(first + sample, times, offsets, trajectories, step, stream, key0, key1, amplitude, exponent, decay, drawn);
        if (blockIdx.x == 0) {
            time[sample] = drawn.time;
            chosen[sample] = drawn.trajectory;
        }
    }
    __syncthreads();
    const u32 blocks = (SIZE + 3) / 4;
    u32 block = blockIdx.x * blockDim.x * EACH + threadIdx.x;
    for (u32 i = 0; i < EACH; ++i, block += blockDim.x) {
        if (block < blocks) write_block<Y, DRAWS, NOISE, SIZE, STAGED>(drawn, sample, first + sample, block, values, state, target, step, stream, key0, key1);
    }
}

// Small fields: one thread per sample.
template <class Y, int SMOOTHNESS, int STENCIL, Draws DRAWS, bool NOISE, u32 SIZE, u32 BATCH, u32 STAGED>
DEVICE void sample_points(const float* values, const double* times, const u32* offsets, const u32* counter, float* time, Y* state, Y* target,
    u32* chosen, u32 trajectories, u32 stream, u32 key0, u32 key1, double amplitude, u32 exponent, double decay, u32 first) {
    const u32 sample = blockIdx.x * blockDim.x + threadIdx.x, step = *counter;
    if (sample >= BATCH) return;
    Drawn drawn;
    draw<SMOOTHNESS, STENCIL, DRAWS>(first + sample, times, offsets, trajectories, step, stream, key0, key1, amplitude, exponent, decay, drawn);
    time[sample] = drawn.time;
    chosen[sample] = drawn.trajectory;
    for (u32 block = 0; block < (SIZE + 3) / 4; ++block)
        write_block<Y, DRAWS, NOISE, SIZE, STAGED>(drawn, sample, first + sample, block, values, state, target, step, stream, key0, key1);
}

// Windows of snapshots with their times: one thread for every four elements of a sample's field. Shorter trajectories
// repeat their last snapshot.
template <class Y, u32 INTERVALS, u32 SIZE, u32 BATCH, bool STAGED>
DEVICE void sample_windows(const float* values, const double* times, const u32* offsets, const u32* counter, float* time, Y* state, Y* target,
    u32* chosen, float* instants, float* lengths, u32 trajectories, u32 stream, u32 key0, u32 key1, u32 first) {
    const u32 blocks = (SIZE + 3) / 4;
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 sample = (u32)(thread / blocks), block = (u32)(thread % blocks);
    if (sample >= BATCH) return;
    u32 words[4];
    philox(first + sample, *counter, stream, 0, key0, key1, words);
    const u32 trajectory = scaled(words[0], trajectories);
    const u32 start = offsets[trajectory], snapshots = offsets[trajectory + 1] - start;
    const u32 row = start + scaled(words[1], snapshots > INTERVALS ? snapshots - INTERVALS : 1);
    const u32 last = offsets[trajectory + 1] - 1 - row;
    const u32 here = SIZE - block * 4 < 4 ? SIZE - block * 4 : 4;
    const float* rows = values + (STAGED ? (u64)sample * (INTERVALS + 1) : (u64)row) * SIZE + block * 4;
    for (u32 k = 0; k <= INTERVALS; ++k) {
        const float* from = rows + (u64)(k < last ? k : last) * SIZE;
        Y* to = k == 0 ? state + (u64)sample * SIZE : target + ((u64)(k - 1) * BATCH + sample) * SIZE;
        for (u32 i = 0; i < here; ++i) to[block * 4 + i] = Cast<Y>::of(from[i]);
    }
    if (block > 0) return;
    chosen[sample] = trajectory;
    time[sample] = (float)times[row];
    double before = times[row];
    for (u32 k = 0; k <= INTERVALS; ++k) {
        const double instant = times[row + (k < last ? k : last)];
        instants[k * BATCH + sample] = (float)instant;
        if (k > 0) lengths[(k - 1) * BATCH + sample] = (float)(instant - before);
        before = instant;
    }
}

// Whole trajectories: blocks of threads share the weights of one of FRAMES equidistant times of one sample.
template <class Y, int SMOOTHNESS, int STENCIL, u32 FRAMES, u32 SIZE, u32 STAGED>
DEVICE void sample_whole(const float* values, const double* times, const u32* offsets, const u32* counter, float* time, Y* state, Y* target,
    u32* chosen, u32 trajectories, u32 stream, u32 key0, u32 key1, u32 first) {
    __shared__ Weights shared;
    __shared__ u64 start;
    const u32 sample = blockIdx.z, frame = blockIdx.y;
    if (threadIdx.x == 0) {
        u32 words[4];
        philox(first + sample, *counter, stream, 0, key0, key1, words);
        const u32 trajectory = scaled(words[0], trajectories), row = offsets[trajectory], snapshots = offsets[trajectory + 1] - row;
        times += row;
        const double span = __dadd_rn(times[snapshots - 1], -times[0]), share = (double)frame / (double)(FRAMES > 1 ? FRAMES - 1 : 1);
        path_weights<SMOOTHNESS, STENCIL>(times, snapshots, __dadd_rn(times[0], __dmul_rn(span, share)), shared);
        start = STAGED ? (u64)sample * STAGED : row;
        if (frame == 0 && blockIdx.x == 0) {
            time[sample] = (float)times[0];
            chosen[sample] = trajectory;
        }
    }
    __syncthreads();
    const float* rows = values + start * SIZE;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < SIZE; i += gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (u32 k = 0; k < shared.count; ++k) sum += (float)shared.value[k] * rows[(u64)(shared.first + k) * SIZE + i];
        target[((u64)sample * FRAMES + frame) * SIZE + i] = Cast<Y>::of(sum);
        if (frame == 0) state[(u64)sample * SIZE + i] = Cast<Y>::of(rows[i]);
    }
}
