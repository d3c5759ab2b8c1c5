// Convolutions of fields with few channels, stride 1, in bf16: patches are gathered on the way to the tensor cores. The
// elements of a patch are numbered tap by tap, channels last, as in the weights.

template <u32 B_, u32 H_, u32 W_, u32 CI_, u32 CO_, u32 KH_, u32 KW_, u32 HO_, u32 WO_, int PH_, int PW_, u32 ROWS_> struct FewChannels {
    static constexpr u32 B = B_, H = H_, W = W_, CI = CI_, CO = CO_, KH = KH_, KW = KW_, HO = HO_, WO = WO_;
    static constexpr int PH = PH_, PW = PW_;
    // Number of rows of the result computed from one tile of the field.
    static constexpr u32 ROWS = ROWS_;
    static constexpr u32 K = KH * KW * CI;
    static constexpr u32 STEPS = (K + 7) / 8;
    static constexpr u32 PITCH = (WO + KW - 1) * CI;
    static constexpr u32 STRIPS = (HO + ROWS - 1) / ROWS;
    // Groups of 16 positions extend beyond the last column.
    static constexpr u32 TILE = ((ROWS + KH - 1) * PITCH + 16 * CI + 7) / 8 * 8;

    static DEVICE u32 place(u32 element) {
        const u32 e = element < K ? element : 0;
        return e / CI / KW * PITCH + e / CI % KW * CI + e % CI;
    }
    // Loads the part of a field on which a strip of the result depends; zeros outside the field.
    static DEVICE void fill(const bf16* x, u32 sample, u32 strip, bf16* tile) {
        constexpr u32 COLUMNS = WO + KW - 1, COUNT = (ROWS + KH - 1) * COLUMNS;
        for (u32 i = threadIdx.x; i < COUNT; i += 256) {
            const int row = (int)(strip * ROWS + i / COLUMNS) - PH, column = (int)(i % COLUMNS) - PW;
            const bool inside = row >= 0 && row < (int)H && column >= 0 && column < (int)W;
            const bf16* from = x + (((size_t)sample * H + row) * W + column) * CI;
#pragma unroll
            for (u32 c = 0; c < CI; ++c) tile[i * CI + c].bits = inside ? from[c].bits : (u16)0;
        }
    }
};

// Two elements of a tile as one word.
DEVICE u32 pair(const bf16* first, const bf16* second) { return (u32)first->bits | ((u32)second->bits << 16); }

// A warp computes 16 positions of all CO channels at a time; a lane has CO / 4 neighbouring channels of two positions.
template <class F> DEVICE void few_channels_forward(const bf16* x, const bf16* w, bf16* y) {
    constexpr u32 TILES = F::CO / 8, WORDS = F::CO / 8;
    __shared__ __align__(16) bf16 tile[F::TILE];
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const u32 sample = blockIdx.x / F::STRIPS, strip = blockIdx.x % F::STRIPS;
    u32 weight[F::STEPS][TILES], first[F::STEPS], second[F::STEPS];
#pragma unroll
    for (u32 s = 0; s < F::STEPS; ++s) {
        const u32 e = 8 * s + 2 * t;
        first[s] = F::place(e);
        second[s] = F::place(e + 1);
#pragma unroll
        for (u32 j = 0; j < TILES; ++j) {
            const bf16* from = w + ((g / 2) * (F::CO / 4) + 2 * j + g % 2) * F::K + e;
            weight[s][j] = (e < F::K ? (u32)from[0].bits : 0u) | (e + 1 < F::K ? (u32)from[1].bits << 16 : 0u);
        }
    }
    F::fill(x, sample, strip, tile);
    __syncthreads();
    constexpr u32 ACROSS = (F::WO + 15) / 16;
    for (u32 piece = threadIdx.x / 32; piece < F::ROWS * ACROSS; piece += 8) {
        const u32 row = piece / ACROSS, column = piece % ACROSS * 16;
        if (strip * F::ROWS + row >= F::HO) break;
        const bf16* at = tile + row * F::PITCH + (column + g) * F::CI;
        float sum[TILES][4] = {};
#pragma unroll
        for (u32 s = 0; s < F::STEPS; ++s) {
            u32 a0, a1;
            if (F::CI % 2 == 0) {
                a0 = *reinterpret_cast<const u32*>(at + first[s]);
                a1 = *reinterpret_cast<const u32*>(at + first[s] + 8 * F::CI);
            } else {
                a0 = pair(at + first[s], at + second[s]);
                a1 = pair(at + first[s] + 8 * F::CI, at + second[s] + 8 * F::CI);
            }
#pragma unroll
            for (u32 j = 0; j < TILES; ++j) mma_m16n8k8_bf16(sum[j], a0, a1, weight[s][j]);
        }
        bf16* to = y + (((size_t)sample * F::HO + strip * F::ROWS + row) * F::WO + column + g) * F::CO + t * (F::CO / 4);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (F::WO % 16 != 0 && column + g + 8 * half >= F::WO) break;
            Pack<u32, 4> words;
#pragma unroll
            for (u32 j = 0; j < WORDS; ++j) {
                words.at[j % 4] = round_pair(sum[j][2 * half], sum[j][2 * half + 1]);
                if (j % 4 == 3) *reinterpret_cast<Pack<u32, 4>*>(to + 8 * half * F::CO + 2 * (j - 3)) = words;
            }
        }
    }
}

// The gradient of the weights. A block iterates over strips of dy, each warp over 16 positions at a time through its
// own ring of shared memory. `partial` [blocks, CO, K] gets each block's sums.
template <class F, int RING> DEVICE void few_channels_weight(const bf16* x, const bf16* dy, float* partial) {
    constexpr u32 CHUNKS = F::CO / 8, DOWN = F::CO / 16, ACROSS = (F::K + 7) / 8;
    constexpr u32 STRIPS = F::B * F::STRIPS, LINE = F::WO / 16;
    static_assert(F::WO % 16 == 0 && F::CO % 16 == 0 && CHUNKS % 8 == 0, "whole rows of 16 positions, lines of 128 bytes");
    extern __shared__ __align__(128) unsigned char memory[];
    bf16* ring = reinterpret_cast<bf16*>(memory) + threadIdx.x / 32 * RING * 16 * F::CO;
    bf16* tile = reinterpret_cast<bf16*>(memory) + 8 * RING * 16 * F::CO;
    const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    u32 place[ACROSS];
#pragma unroll
    for (u32 n = 0; n < ACROSS; ++n) place[n] = F::place(8 * n + g);
    float sum[DOWN][ACROSS][4] = {};
    // 16-byte pieces of a position are stored in an order that avoids bank conflicts.
    auto fetch = [&](u32 strip, u32 piece, u32 slot, u32 pieces) {
        if (piece < pieces) {
            const u32 sample = strip / F::STRIPS, first = strip % F::STRIPS * F::ROWS * F::WO + piece * 16;
            const bf16* from = dy + ((size_t)sample * F::HO * F::WO + first) * F::CO;
#pragma unroll
            for (u32 i = lane; i < 16 * CHUNKS; i += 32) {
                const u32 position = i / CHUNKS, chunk = i % CHUNKS;
                copy_async(ring + (slot * 16 + position) * F::CO + (chunk ^ (position & 7)) * 8, from + i * 8);
            }
        }
        commit_copies();
    };
    for (u32 strip = blockIdx.x; strip < STRIPS; strip += gridDim.x) {
        const u32 top = strip % F::STRIPS * F::ROWS;
        const u32 pieces = (top + F::ROWS <= F::HO ? F::ROWS : F::HO - top) * LINE;
#pragma unroll
        for (int s = 0; s < RING - 1; ++s) fetch(strip, warp + 8 * s, s, pieces);
        __syncthreads();
        F::fill(x, strip / F::STRIPS, strip % F::STRIPS, tile);
        __syncthreads();
        u32 slot = 0;
        for (u32 piece = warp; piece < pieces; piece += 8) {
            fetch(strip, piece + 8 * (RING - 1), (slot + RING - 1) % RING, pieces);
            wait_copies<RING - 1>();
            __syncwarp();
            const bf16* at = tile + piece / LINE * F::PITCH + (piece % LINE * 16 + 2 * t) * F::CI;
            u32 b[ACROSS][2];
#pragma unroll
            for (u32 n = 0; n < ACROSS; ++n) {
                b[n][0] = pair(at + place[n], at + place[n] + F::CI);
                b[n][1] = pair(at + place[n] + 8 * F::CI, at + place[n] + 9 * F::CI);
            }
#pragma unroll
            for (u32 m = 0; m < DOWN; ++m) {
                const u32 position = lane / 16 * 8 + lane % 8, chunk = 2 * m + lane / 8 % 2;
                const bf16* from = ring + (slot * 16 + position) * F::CO + (chunk ^ (position & 7)) * 8;
                u32 a[4];
                load_four_turned(a[0], a[1], a[2], a[3], from);
#pragma unroll
                for (u32 n = 0; n < ACROSS; ++n) mma_m16n8k16_bf16(sum[m][n], a[0], a[1], a[2], a[3], b[n][0], b[n][1]);
            }
            __syncwarp();
            slot = (slot + 1) % RING;
        }
        wait_copies<0>();
    }
    __syncthreads();
    float* all = reinterpret_cast<float*>(memory);
    for (u32 turn = 0; turn < 8; ++turn) {
        if (warp == turn) {
#pragma unroll
            for (u32 m = 0; m < DOWN; ++m)
#pragma unroll
                for (u32 n = 0; n < ACROSS; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        float* to = all + (16 * m + g + i / 2 * 8) * 8 * ACROSS + 8 * n + 2 * t + i % 2;
                        *to = sum[m][n][i] + (turn == 0 ? 0.0f : *to);
                    }
        }
        __syncthreads();
    }
    for (u32 i = threadIdx.x; i < F::CO * F::K; i += 256) partial[(size_t)blockIdx.x * F::CO * F::K + i] = all[i / F::K * 8 * ACROSS + i % F::K];
}

// Sums over the blocks.
template <u32 BLOCKS, u32 COUNT> DEVICE void few_channels_totals(const float* partial, bf16* dw) {
    __shared__ float shared[256];
    const u32 column = blockIdx.x * 32 + threadIdx.x % 32, row = threadIdx.x / 32;
    float sum = 0.0f;
    if (column < COUNT)
#pragma unroll 8
        for (u32 b = row; b < BLOCKS; b += 8) sum += partial[(size_t)b * COUNT + column];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (row != 0 || column >= COUNT) return;
    for (int r = 1; r < 8; ++r) sum += shared[r * 32 + threadIdx.x];
    dw[column] = Cast<bf16>::of(sum);
}
