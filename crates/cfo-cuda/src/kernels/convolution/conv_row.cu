// Convolutions of fields of one row on tensor cores: the forward product, its adjoint in the input and its adjoint in
// the weight. Positions outside the field are computed by index arithmetic, so no padded field and no patches are
// written.
//
// A fine field [B, L, CI] and a coarse one [B, T, CO] are related by y[j] = sum over q of x[j S + q - O] w[q]. Outside
// the fine field are zeros (MODE 0) or its periodic continuation (MODE 1, where L = S T).
//
// The rows (sample, j) of all samples are numbered consecutively. The places that a run of rows reads of a sample form
// one window, and the windows of neighbouring samples are contiguous: row (d, j) and tap q read place d WINDOW + j STEP
// + q.

DEVICE void load_pack(const char* from, u32* to) {
    const Pack<u32, 4> pack = *reinterpret_cast<const Pack<u32, 4>*>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = pack.at[i];
}
DEVICE u32 load_word(const char* from) { return *reinterpret_cast<const u32*>(from); }
// Four 8 x 8 matrices of bf16, transposed.
DEVICE void load_turned(const char* from, u32* to) {
    load_four_turned(to[0], to[1], to[2], to[3], from);
}

// The differences between tf32 and bf16: a pack of 16 bytes holds the terms of two products of TERMS terms each.
template <class E> struct Tensor;
template <> struct Tensor<float> {
    static constexpr int TERMS = 8;
    // Rounds to nearest, ties away from zero, since the tensor cores drop the last 13 bits. This is one instruction, a
    // conversion would be three. The maximum preserves the hardware's NaN, which would overflow.
    static DEVICE void round(u32& word) { word = (u32)max((int)(word + 0x1000u), (int)word); }
    static DEVICE void multiply(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
        mma_m16n8k8_tf32(c, a0, a1, a2, a3, b0, b1);
    }
};
template <> struct Tensor<bf16> {
    static constexpr int TERMS = 16;
    static DEVICE void round(u32&) {}
    static DEVICE void multiply(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
        mma_m16n8k16_bf16(c, a0, a1, a2, a3, b0, b1);
    }
};

template <u32 B_, u32 L_, u32 CI_, u32 T_, u32 CO_, u32 K_, u32 S_, int O_, int MODE_> struct ConvRow {
    static constexpr u32 B = B_, L = L_, CI = CI_, T = T_, CO = CO_, K = K_, S = S_;
    static constexpr int O = O_, MODE = MODE_;
};

// The position in a field of the given length; -1 where it is zero.
template <int MODE, int LENGTH> DEVICE int place(int position) {
    if (MODE == 0) return position >= 0 && position < LENGTH ? position : -1;
    // At most 8 outside.
    if (LENGTH >= 8) return position < 0 ? position + LENGTH : position >= LENGTH ? position - LENGTH : position;
    position %= LENGTH;
    return position < 0 ? position + LENGTH : position;
}

DEVICE constexpr u32 up(u32 a, u32 b) { return (a + b - 1) / b * b; }

// The windows of a run of ROWS rows.
template <u32 ROWS, u32 ROWS_OF_SAMPLE, u32 STEP, u32 TAPS> struct Windows {
    static constexpr u32 WINDOW = up((ROWS_OF_SAMPLE - 1) * STEP + TAPS, STEP);
    // Number of windows that a run enters after its first.
    static constexpr u32 FURTHER = ROWS % ROWS_OF_SAMPLE == 0 ? ROWS / ROWS_OF_SAMPLE - 1 : (ROWS + ROWS_OF_SAMPLE - 2) / ROWS_OF_SAMPLE;
    static constexpr u32 PLACES = up((ROWS - 1) * STEP + TAPS + FURTHER * (WINDOW - ROWS_OF_SAMPLE * STEP), STEP);
    // Places at distance STEP are adjacent.
    static DEVICE u32 slot(u32 at) { return STEP == 1 ? at : at % STEP * (PLACES / STEP) + at / STEP; }
    static DEVICE constexpr u32 tap(u32 q) { return STEP == 1 ? q : q % STEP * (PLACES / STEP) + q / STEP; }
};

// y = conv(x, w) (ADJOINT false), or dx of dy (ADJOINT true; blockIdx.z is the position modulo S). In the tensor cores'
// products, output channels are rows (64 per block) and positions are columns (ROWS). Channels of the source pass
// through shared memory 64 bytes at a time, with the weights of all taps.
template <class E, bool ADJOINT, class G, u32 ROWS, int COLUMNS, int STAGES> struct ConvRowProduct {
    static constexpr u32 THREADS = 64 * COLUMNS, SAMPLES = G::B, ROWS_OF_BLOCK = ROWS;
    static constexpr u32 STEP = ADJOINT ? 1 : G::S;
    static constexpr u32 TAPS = ADJOINT ? (G::K + G::S - 1) / G::S : G::K;
    static constexpr u32 SOURCE = ADJOINT ? G::T : G::L;
    static constexpr u32 C = ADJOINT ? G::CO : G::CI;
    static constexpr u32 N = ADJOINT ? G::CI : G::CO;
    static constexpr u32 T = ADJOINT ? (G::L + G::S - 1) / G::S : G::T;
    static constexpr u32 LENGTH = ADJOINT ? G::L : G::T;
    static constexpr u32 CHANNELS = 64 / sizeof(E);
    static constexpr u32 PACK = 16 / sizeof(E);
    static constexpr u32 CHUNKS = C / CHANNELS;
    typedef Windows<ROWS, T, STEP, TAPS> W;
    static constexpr u32 SOURCE_BYTES = W::PLACES * 64;
    static constexpr u32 STAGE_BYTES = SOURCE_BYTES + TAPS * 4096;
    static constexpr u32 TILES = (ROWS + 7) / 8;
    static constexpr int OWN = (TILES + COLUMNS - 1) / COLUMNS;
    static constexpr int SOURCE_COPIES = (W::PLACES * 4 + THREADS - 1) / THREADS;
    static constexpr int WEIGHT_COPIES = (TAPS * 256 + THREADS - 1) / THREADS;
    static constexpr u32 PITCH = 68;

    u32 base;
    // Offset of each copy's source at the first chunk, in elements; all ones for zeros.
    u32 source_at[SOURCE_COPIES], weight_at[WEIGHT_COPIES];

    DEVICE void prepare(u32 first_row, u32 first_channel, u32 shift) {
        const u32 first_sample = first_row / T;
        const int offset = ADJOINT ? (int)TAPS - 1 - (int)((shift + G::O) / G::S) : G::O;
#pragma unroll
        for (int i = 0; i < SOURCE_COPIES; ++i) {
            const u32 item = i * THREADS + threadIdx.x;
            const u32 at = item / 4 + first_row % T * STEP;
            const u32 sample = first_sample + at / W::WINDOW;
            const int position = place<G::MODE, SOURCE>((int)(at % W::WINDOW) - offset);
            const bool there = sample < G::B && position >= 0;
            source_at[i] = there ? (sample * SOURCE + position) * C + item % 4 * PACK : ~0u;
        }
#pragma unroll
        for (int i = 0; i < WEIGHT_COPIES; ++i) {
            const u32 item = i * THREADS + threadIdx.x;
            const u32 tap = item / 256;
            if (!ADJOINT) {
                // w [N, K, C], channels of the source last.
                const u32 n = first_channel + item / 4 % 64;
                weight_at[i] = n < N ? (n * G::K + tap) * C + item % 4 * PACK : ~0u;
            } else {
                // w [C, K, N].
                constexpr u32 ACROSS = 64 / PACK;
                const u32 c = item % 256 / ACROSS, n = first_channel + item % ACROSS * PACK;
                const u32 q = (shift + G::O) % G::S + G::S * (TAPS - 1 - tap);
                weight_at[i] = n < N && q < G::K ? (c * G::K + q) * N + n : ~0u;
            }
        }
    }

    DEVICE void fetch(const E* x, const E* w, u32 chunk) const {
        const u32 stage = base + chunk % STAGES * STAGE_BYTES;
#pragma unroll
        for (int i = 0; i < SOURCE_COPIES; ++i) {
            const u32 item = i * THREADS + threadIdx.x;
            if (W::PLACES * 4 % THREADS != 0 && item >= W::PLACES * 4) break;
            const bool there = source_at[i] != ~0u;
            copy_async_or_zero(stage + W::slot(item / 4) * 64 + item % 4 * 16, x + (there ? source_at[i] + chunk * CHANNELS : 0), there);
        }
#pragma unroll
        for (int i = 0; i < WEIGHT_COPIES; ++i) {
            const u32 item = i * THREADS + threadIdx.x;
            if (TAPS * 256 % THREADS != 0 && item >= TAPS * 256) break;
            const bool there = weight_at[i] != ~0u;
            u32 to = item * 16;
            if (ADJOINT) {
                constexpr u32 ACROSS = 64 / PACK;
                const u32 row = item / ACROSS, c = row % CHANNELS;
                // Channels that a warp reads together are in different banks.
                const u32 turn = sizeof(E) == 4 ? c / 4 * 2 : c / 8 * 2 + c % 2;
                to = row * (64 * sizeof(E)) + (item % ACROSS ^ turn) * 16;
            }
            const u32 step = ADJOINT ? CHANNELS * G::K * N : CHANNELS;
            copy_async_or_zero(stage + SOURCE_BYTES + to, w + (there ? weight_at[i] + chunk * step : 0), there);
        }
    }

    // The weights of 32 channels and one tap: two tiles of 16 channels, two products each.
    static DEVICE void weights(const char* stage, u32 tap, u32 half, u32 (&a)[2][2][4]) {
        const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        if (!ADJOINT) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int tile = i / 2, part = i % 2;
                u32 pack[4];
                load_pack(stage + ((tap * 64 + half * 32 + tile * 16 + part * 8 + g) * 4 + t) * 16, pack);
                a[tile][0][part] = pack[0];
                a[tile][0][part + 2] = pack[1];
                a[tile][1][part] = pack[2];
                a[tile][1][part + 2] = pack[3];
            }
        } else if (sizeof(E) == 4) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int tile = i / 8, part = i / 4 % 2, e = i % 4;
                const u32 n = (half * 32 + tile * 16 + part * 8 + g) ^ (t * 8);
                a[tile][e / 2][part + e % 2 * 2] = load_word(stage + ((tap * 16 + t * 4 + e) * 64 + n) * 4);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int tile = i / 2, product = i % 2;
                // Row r of a matrix is channel 8 (r / 2) + r % 2 + 2 set.
                const u32 r = lane % 8, c = r / 2 * 8 + r % 2 + (product * 2 + lane / 16) * 2;
                const u32 pack = half * 4 + tile * 2 + lane / 8 % 2;
                load_turned(stage + (tap * 32 + c) * 128 + (pack ^ (c / 8 * 2 + c % 2)) * 16, a[tile][product]);
            }
        }
#pragma unroll
        for (int i = 0; i < 16; ++i) Tensor<E>::round(a[i / 8][i / 4 % 2][i % 4]);
    }

    // COUNT tiles of columns. With one branch around the whole, the compiler can reorder loads and products.
    template <int COUNT> static DEVICE void multiply(const char* stage, u32 half, const u32 (&own)[OWN], float (&sums)[OWN][2][4]) {
#pragma unroll
        for (u32 tap = 0; tap < TAPS; ++tap) {
            u32 a[2][2][4], b[COUNT][4];
            weights(stage + SOURCE_BYTES, tap, half, a);
#pragma unroll
            for (int i = 0; i < COUNT; ++i) load_pack(stage + own[i] + W::tap(tap) * 64, b[i]);
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
#pragma unroll
                for (int e = 0; e < 4; ++e) Tensor<E>::round(b[i][e]);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const u32* part = a[e % 2][e / 2];
                    Tensor<E>::multiply(sums[i][e % 2], part[0], part[1], part[2], part[3], b[i][e / 2 * 2], b[i][e / 2 * 2 + 1]);
                }
            }
        }
    }

    // The results of the block, [ROWS, 64] with PITCH numbers per row, in shared memory.
    DEVICE float* product(const E* x, const E* w, char* shared) {
        base = shared_address(shared);
        const u32 first_row = blockIdx.x * ROWS;
        prepare(first_row, blockIdx.y * 64, ADJOINT ? blockIdx.z : 0);
#pragma unroll
        for (int chunk = 0; chunk < STAGES - 1; ++chunk) {
            if (chunk < (int)CHUNKS) fetch(x, w, chunk);
            commit_copies();
        }
        const u32 warp = threadIdx.x / 32, half = warp % 2, column = warp / 2;
        const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        u32 own[OWN];
        float sums[OWN][2][4] = {};
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            u32 row = (column + i * COLUMNS) * 8 + g;
            row = row < ROWS ? row : ROWS - 1;
            const u32 counted = first_row % T + row;
            own[i] = W::slot(counted / T * W::WINDOW + counted % T * STEP - first_row % T * STEP) * 64 + t * 16;
        }
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) {
            wait_copies<STAGES - 2>();
            __syncthreads();
            if (chunk + STAGES - 1 < CHUNKS) fetch(x, w, chunk + STAGES - 1);
            commit_copies();
            const char* stage = shared + chunk % STAGES * STAGE_BYTES;
            if (TILES % COLUMNS == 0 || column < TILES % COLUMNS)
                multiply<OWN>(stage, half, own, sums);
            else if (OWN > 1)
                multiply<(OWN > 1 ? OWN - 1 : 1)>(stage, half, own, sums);
        }
        wait_copies<0>();
        __syncthreads();
        float* result = reinterpret_cast<float*>(shared);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const u32 tile = column + i * COLUMNS;
            if (TILES % COLUMNS != 0 && tile >= TILES) break;
#pragma unroll
            for (int e = 0; e < 8; ++e)
                result[(tile * 8 + t * 2 + e % 2) * PITCH + half * 32 + e / 4 * 16 + e / 2 % 2 * 8 + g] = sums[i][e / 4][e % 4];
        }
        __syncthreads();
        return result;
    }

    DEVICE void run(const E* x, const E* w, E* y, char* shared) {
        const float* result = product(x, w, shared);
        for (u32 item = threadIdx.x; item < ROWS * 16; item += THREADS) {
            const u32 row = item / 16, channel = blockIdx.y * 64 + item % 16 * 4, counted = blockIdx.x * ROWS + row;
            const u32 sample = counted / T, position = ADJOINT ? counted % T * G::S + blockIdx.z : counted % T;
            if (channel >= N || sample >= G::B || position >= LENGTH) continue;
            float value[4];
            load<4>(result + row * PITCH + item % 16 * 4, value);
            store<4>(y + ((size_t)sample * LENGTH + position) * N + channel, value);
        }
    }
};

// dw of x and dy. A block computes 64 channels of dy by 64 of x with all taps for a part of the rows (blockIdx.x). The
// parts' sums are written to `parts` [gridDim.x, CO, K, CI]. Two groups of 8 warps alternate on the rows in shared
// memory.
template <class E, class G, u32 ROWS, int STAGES> struct ConvRowWeight {
    static constexpr u32 THREADS = 512;
    static constexpr u32 PACK = 16 / sizeof(E), ACROSS = 64 / PACK;
    static constexpr u32 PITCH = 64 * sizeof(E) + (sizeof(E) == 4 ? 32 : 16);
    typedef Windows<ROWS, G::T, G::S, G::K> W;
    static constexpr u32 COARSE_BYTES = ROWS * PITCH;
    static constexpr u32 STAGE_BYTES = COARSE_BYTES + W::PLACES * PITCH;
    static constexpr u32 TERMS = Tensor<E>::TERMS;
    static constexpr u32 ALL = G::B * G::T;
    static constexpr u32 STEPS = ROWS / TERMS;
    static constexpr u32 LINES = THREADS / ACROSS;

    static DEVICE void fetch(const E* x, const E* dy, u32 stage, u32 first_row) {
        const u32 line = threadIdx.x / ACROSS, pack = threadIdx.x % ACROSS;
        const u32 co = blockIdx.y * 64 + pack * PACK, ci = blockIdx.z * 64 + pack * PACK;
#pragma unroll
        for (u32 i = 0; i < (ROWS + LINES - 1) / LINES; ++i) {
            const u32 row = line + i * LINES;
            if (ROWS % LINES != 0 && row >= ROWS) break;
            const bool there = first_row + row < ALL && co < G::CO;
            copy_async_or_zero(stage + row * PITCH + pack * 16, dy + (there ? (first_row + row) * G::CO + co : 0), there);
        }
        const u32 start = first_row / G::T * W::WINDOW + first_row % G::T * G::S;
#pragma unroll
        for (u32 i = 0; i < (W::PLACES + LINES - 1) / LINES; ++i) {
            const u32 own = line + i * LINES;
            if (W::PLACES % LINES != 0 && own >= W::PLACES) break;
            const u32 sample = (start + own) / W::WINDOW;
            const int position = place<G::MODE, G::L>((int)((start + own) % W::WINDOW) - G::O);
            const bool there = sample < G::B && position >= 0 && ci < G::CI;
            copy_async_or_zero(stage + COARSE_BYTES + W::slot(own) * PITCH + pack * 16, x + (there ? (sample * G::L + position) * G::CI + ci : 0), there);
        }
    }

    // The place at which a row's window begins.
    static DEVICE u32 slot_of(u32 skipped_rows, u32 row) {
        const u32 counted = skipped_rows + row;
        return W::slot(counted / G::T * W::WINDOW + counted % G::T * G::S - skipped_rows * G::S) * PITCH;
    }

    // The products of TERMS rows.
    static DEVICE void multiply(const char* stage, u32 skipped_rows, u32 first, float (&sums)[G::K][2][2][4]) {
        const u32 warp = threadIdx.x / 32, half = warp % 2, quarter = warp / 2 % 4;
        const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const char* fine = stage + COARSE_BYTES;
        u32 a[2][4];
        const char* slots[2] = {};
        if (sizeof(E) == 4) {
#pragma unroll
            for (int i = 0; i < 8; ++i)
                a[i / 4][i % 4] = load_word(stage + (first + t + i % 4 / 2 * 4) * PITCH + (half * 32 + i / 4 * 16 + i % 2 * 8 + g) * 4);
            slots[0] = fine + slot_of(skipped_rows, first + t) + (quarter * 16 + g) * 4;
            slots[1] = fine + slot_of(skipped_rows, first + t + 4) + (quarter * 16 + g) * 4;
        } else {
#pragma unroll
            for (int tile = 0; tile < 2; ++tile)
                load_turned(stage + (first + lane % 8 + lane / 16 * 8) * PITCH + (half * 4 + tile * 2 + lane / 8 % 2) * 16, a[tile]);
            slots[0] = fine + slot_of(skipped_rows, first + lane % 16) + (quarter * 2 + lane / 16) * 16;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) Tensor<E>::round(a[i / 4][i % 4]);
#pragma unroll
        for (u32 tap = 0; tap < G::K; ++tap) {
            u32 b[4];
            if (sizeof(E) == 4) {
#pragma unroll
                for (int i = 0; i < 4; ++i) b[i] = load_word(slots[i % 2] + W::tap(tap) * PITCH + i / 2 * 32);
            } else {
                load_turned(slots[0] + W::tap(tap) * PITCH, b);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) Tensor<E>::round(b[i]);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                Tensor<E>::multiply(sums[tap][i / 2][i % 2], a[i / 2][0], a[i / 2][1], a[i / 2][2], a[i / 2][3], b[i % 2 * 2], b[i % 2 * 2 + 1]);
        }
    }

    static DEVICE void run(const E* x, const E* dy, float* parts, u32 chunks, char* shared) {
        const u32 base = shared_address(shared), first_row = blockIdx.x * chunks * ROWS, group = threadIdx.x / 256;
        float sums[G::K][2][2][4] = {};
#pragma unroll
        for (int chunk = 0; chunk < STAGES - 1; ++chunk) {
            if (chunk < (int)chunks) fetch(x, dy, base + chunk * STAGE_BYTES, first_row + chunk * ROWS);
            commit_copies();
        }
        for (u32 chunk = 0; chunk < chunks; ++chunk) {
            wait_copies<STAGES - 2>();
            __syncthreads();
            const u32 next = chunk + STAGES - 1;
            if (next < chunks) fetch(x, dy, base + next % STAGES * STAGE_BYTES, first_row + next * ROWS);
            commit_copies();
            const char* stage = shared + chunk % STAGES * STAGE_BYTES;
            const u32 skipped_rows = (first_row + chunk * ROWS) % G::T;
#pragma unroll
            for (u32 step = 0; step < STEPS / 2; ++step) multiply(stage, skipped_rows, (2 * step + group) * TERMS, sums);
            if (STEPS % 2 == 1 && group == 0) multiply(stage, skipped_rows, (STEPS - 1) * TERMS, sums);
        }
        wait_copies<0>();
        __syncthreads();
        // The first group adds the second one's sums to its own.
        constexpr int SUMS = G::K * 16;
        float* other = reinterpret_cast<float*>(shared) + threadIdx.x % 256;
        float* flat = &sums[0][0][0][0];
        if (group == 1) {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) other[i * 256] = flat[i];
        }
        __syncthreads();
        if (group == 1) return;
#pragma unroll
        for (int i = 0; i < SUMS; ++i) flat[i] += other[i * 256];
        const u32 warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        float* own = parts + (size_t)blockIdx.x * G::CO * G::K * G::CI;
#pragma unroll
        for (u32 tap = 0; tap < G::K; ++tap) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const u32 co = blockIdx.y * 64 + warp % 2 * 32 + i / 4 * 16 + i % 2 * 8 + g;
                const u32 ci = blockIdx.z * 64 + warp / 2 * 16 + i / 2 % 2 * 8 + t * 2;
                if (co < G::CO && ci < G::CI) store<2>(own + (co * G::K + tap) * G::CI + ci, &sums[tap][i / 4][i / 2 % 2][i % 2 * 2]);
            }
        }
    }
};
