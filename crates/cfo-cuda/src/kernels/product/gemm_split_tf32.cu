// Products in single precision on tensor cores, tile by tile.
//
// Each number is the sum of two tf32 numbers of 11 bits, and three of the four products of those are computed. The
// omitted product is of the order of single precision's rounding. The cores truncate their sums, so they add few terms,
// and ordinary additions combine the results. Infinite and huge numbers have no second part; a result that is not
// finite is computed again by ordinary additions.

// Number of terms in a buffer in shared memory.
#define TERMS 32

// A block's tile of M_ rows and N_ columns, the warps along them, and the number of buffers.
template <int M_, int N_, int WARPS_M_, int WARPS_N_, int STAGES_> struct Cut {
    static constexpr int M = M_, N = N_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, STAGES = STAGES_;
    static constexpr int THREADS = 32 * WARPS_M * WARPS_N, MT = M / 16 / WARPS_M, NP = N / 16 / WARPS_N;
    static_assert(M % (16 * WARPS_M) == 0 && N % (16 * WARPS_N) == 0, "whole tiles for every warp");
};
// Rows, columns and terms, and the number of blocks that share the terms of a tile.
template <u32 ROWS_, u32 COLUMNS_, u32 INNER_, u32 CHUNKS_> struct Sizes {
    static constexpr u32 ROWS = ROWS_, COLUMNS = COLUMNS_, INNER = INNER_, CHUNKS = CHUNKS_;
    // Number of terms of a chunk, in whole buffers.
    static constexpr u32 SPAN = (INNER + TERMS * CHUNKS - 1) / (TERMS * CHUNKS) * TERMS;
};
// Whether terms are contiguous, the distance of the other index, the distance of the matrices of a batch, and the
// numbers copied at once.
template <bool ALONG_, u32 STEP_, u32 BATCH_, int V_> struct Factor {
    static constexpr bool ALONG = ALONG_;
    static constexpr u32 STEP = STEP_, BATCH = BATCH_;
    static constexpr int V = V_;
};
// The epilogue: activations by number (SLOPE multiplies by the slope at another operand), added operands, whether the
// value before the activation is stored; the distances of rows and of the batch, and the number of neighbours written
// at once.
template <bool BIAS_, bool ADD_, bool KEEP_, int ACTIVATION_, int SLOPE_, u32 STEP_, u32 BATCH_, int V_> struct Epilogue {
    static constexpr bool BIAS = BIAS_, ADD = ADD_, KEEP = KEEP_;
    static constexpr int ACTIVATION = ACTIVATION_, SLOPE = SLOPE_, V = V_;
    static constexpr u32 STEP = STEP_, BATCH = BATCH_;
};

struct Operands {
    const float *a, *b, *bias, *add, *slope;
    float *kept, *y, *sums, *partial;
};

// Loads TERMS terms of SIDE rows (of a) or columns (of b). Groups of four numbers are permuted so that warps read
// without bank conflicts. PAIRED: two neighbours along the side are read one after the other.
template <class F, int THREADS, int SIDE, bool PAIRED>
DEVICE void bring(float* to, const float* from, u32 first, u32 side, u32 term, u32 end) {
    constexpr int LINE = F::ALONG ? TERMS : SIDE, PER = LINE / F::V, COUNT = SIDE * TERMS / F::V;
    static_assert(F::ALONG || SIDE % 32 == 0, "places are changed within 32 numbers");
#pragma unroll
    for (int round = 0; round < (COUNT + THREADS - 1) / THREADS; ++round) {
        const u32 i = round * THREADS + threadIdx.x;
        if (COUNT % THREADS != 0 && i >= COUNT) break;
        const u32 outer = i / PER, inner = i % PER * F::V;
        const u32 s = F::ALONG ? outer : inner, k = F::ALONG ? inner : outer;
        const bool there = first + s < side && term + k < end;
        const size_t at = F::ALONG ? (size_t)(first + s) * F::STEP + term + k : (size_t)(term + k) * F::STEP + first + s;
        const u32 turn = F::ALONG ? (PAIRED ? s >> 1 : s) & 3 : (k >> 1) & 3;
        const u32 place = (((inner >> 2) ^ (turn << 1)) << 2) + (inner & 3);
        copy_async_numbers<F::V>(to + outer * LINE + place, there ? from + at : from, there);
    }
}

DEVICE float2 pair_at(const float* from) { return *reinterpret_cast<const float2*>(from); }

// A number as the sum of two tf32 numbers. The second part is exact; the cores truncate its last bit.
DEVICE void halves(float x, u32& high, u32& low) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
}

// sum += a b for 16 x 8 x 8 numbers.
DEVICE void multiply(float* sum, const u32* a, const u32* b) {
    mma_m16n8k8_tf32(sum, a[0], a[1], a[2], a[3], b[0], b[1]);
}

// A lane's part of 16 rows of a: rows `row` + g and + 8 or, if rows are contiguous, 2 g and 2 g + 1.
template <int SIDE, bool ALONG> DEVICE void rows_of(const float* a, u32 row, u32 step, float* to) {
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (ALONG) {
        const float* from = a + (row + g) * TERMS + (((2 * step + (t >> 1)) ^ ((g & 3) << 1)) << 2) + (t & 1) * 2;
        const float2 x = pair_at(from), y = pair_at(from + 8 * TERMS);
        to[0] = x.x, to[1] = y.x, to[2] = x.y, to[3] = y.y;
    } else {
        const float* from = a + (8 * step + 2 * t) * SIDE + (((row / 4 + (g >> 1)) ^ (t << 1)) << 2) + (g & 1) * 2;
        const float2 x = pair_at(from), y = pair_at(from + SIDE);
        to[0] = x.x, to[1] = x.y, to[2] = y.x, to[3] = y.y;
    }
}

// A lane's part of 16 columns of b: columns `column` + 2 g (first two numbers) and 2 g + 1 (last two).
template <int SIDE, bool ALONG> DEVICE void columns_of(const float* b, u32 column, u32 step, float* to) {
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (ALONG) {
        const float* from = b + (column + 2 * g) * TERMS + (((2 * step + (t >> 1)) ^ ((g & 3) << 1)) << 2) + (t & 1) * 2;
        const float2 x = pair_at(from), y = pair_at(from + TERMS);
        to[0] = x.x, to[1] = x.y, to[2] = y.x, to[3] = y.y;
    } else {
        const float* from = b + (8 * step + 2 * t) * SIDE + (((column / 4 + (g >> 1)) ^ (t << 1)) << 2) + (g & 1) * 2;
        const float2 x = pair_at(from), y = pair_at(from + SIDE);
        to[0] = x.x, to[1] = y.x, to[2] = x.y, to[3] = y.y;
    }
}

DEVICE bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }

// A buffer's terms, 8 per step, for a warp's MT x 2 NP tiles of 16 x 8. M and N are the sides of the buffers. The cores
// sum RUN steps before an ordinary addition.
template <int M, int N, int MT, int NP, bool A_ALONG, bool B_ALONG>
DEVICE void take(const float* a, const float* b, u32 row, u32 column, float (*sum)[2 * NP][4]) {
    constexpr int RUN = NP > 1 ? 2 : 4, NT = 2 * NP;
#pragma unroll
    for (int first = 0; first < TERMS / 8; first += RUN) {
        u32 high[RUN][NT][2], low[RUN][NT][2];
#pragma unroll
        for (int i = 0; i < RUN * NP; ++i) {
            const int s = i / NP, p = i % NP;
            float value[4];
            columns_of<N, B_ALONG>(b, column + 16 * p, first + s, value);
#pragma unroll
            for (int j = 0; j < 4; ++j) halves(value[j], high[s][2 * p + j / 2][j % 2], low[s][2 * p + j / 2][j % 2]);
        }
#pragma unroll
        for (int m = 0; m < MT; ++m) {
            float part[NT][4] = {};
#pragma unroll
            for (int s = 0; s < RUN; ++s) {
                float value[4];
                u32 upper[4], lower[4];
                rows_of<M, A_ALONG>(a, row + 16 * m, first + s, value);
#pragma unroll
                for (int i = 0; i < 4; ++i) halves(value[i], upper[i], lower[i]);
#pragma unroll
                for (int n = 0; n < NT; ++n) multiply(part[n], lower, high[s][n]);
#pragma unroll
                for (int n = 0; n < NT; ++n) multiply(part[n], upper, low[s][n]);
#pragma unroll
                for (int n = 0; n < NT; ++n) multiply(part[n], upper, high[s][n]);
            }
#pragma unroll
            for (int i = 0; i < 4 * NT; ++i) sum[m][i / 4][i % 4] += part[i / 4][i % 4];
        }
    }
}

// One element by ordinary additions.
template <class A, class B>
__device__ __noinline__ float plain_sum(const float* a, const float* b, u32 row, u32 column, u32 first, u32 end) {
    float sum = 0.0f;
    for (u32 k = first; k < end; ++k) {
        const float x = a[A::ALONG ? (size_t)row * A::STEP + k : (size_t)k * A::STEP + row];
        const float y = b[B::ALONG ? (size_t)column * B::STEP + k : (size_t)k * B::STEP + column];
        sum += x * y;
    }
    return sum;
}

// Added operands of four neighbours of a result, and their slopes. All are loaded before any store, because loads are
// not moved across stores.
template <class W> DEVICE void operands_of(const Operands& x, size_t at, u32 column, u32 there, float* plus, float* slope) {
#pragma unroll
    for (int i = 0; i < 4; i += W::V) {
        if (W::V < 4 && i >= there) break;
        float other[W::V];
        if (W::BIAS) load<W::V>(x.bias + column + i, plus + i);
        if (W::ADD) load<W::V>(x.add + at + i, other);
#pragma unroll
        for (int j = 0; j < W::V; ++j) {
            if (W::ADD) plus[i + j] = W::BIAS ? plus[i + j] + other[j] : other[j];
        }
        if (W::SLOPE) load<W::V>(x.slope + at + i, slope + i);
    }
}

// Bias, sum, activation or slope, and output; `there` of the four exist.
template <class W> DEVICE void finish(const Operands& x, float* value, const float* plus, const float* slope, size_t at, u32 there) {
#pragma unroll
    for (int i = 0; i < 4; i += W::V) {
        if (W::V < 4 && i >= there) break;
#pragma unroll
        for (int j = i; j < i + W::V; ++j) {
            if (W::BIAS || W::ADD) value[j] += plus[j];
        }
        if (W::KEEP) store<W::V>(x.kept + at + i, value + i);
#pragma unroll
        for (int j = i; j < i + W::V; ++j) {
            if (W::SLOPE) value[j] *= activate_slope<W::SLOPE>(slope[j]);
            value[j] = activate<W::ACTIVATION>(value[j]);
        }
        store<W::V>(x.y + at + i, value + i);
    }
}

// The output of COUNT times four neighbours, BATCH at a time: `place(i, at, column)` returns their position, or that
// they do not exist, `value(i, to)` their values.
template <class W, int COUNT, int BATCH, u32 COLUMNS, class Place, class Values>
DEVICE void finish_all(const Operands& x, const Place& place, const Values& values) {
#pragma unroll
    for (int first = 0; first < COUNT; first += BATCH) {
        float plus[BATCH][4], slope[BATCH][4];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            size_t at;
            u32 column;
            if (first + i < COUNT && place(first + i, at, column)) operands_of<W>(x, at, column, COLUMNS - column, plus[i], slope[i]);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            size_t at;
            u32 column;
            if (first + i >= COUNT || !place(first + i, at, column)) continue;
            float value[4];
            values(first + i, value);
            finish<W>(x, value, plus[i], slope[i], at, COLUMNS - column);
        }
    }
}

// The tile of one block: state of its threads.
template <class C, class S, class A, class B, class W> struct Product {
    static constexpr int MT = C::MT, NP = C::NP, NT = 2 * NP;
    static constexpr int A_SIZE = C::M * TERMS, STAGE = (C::M + C::N) * TERMS;
    static constexpr u32 BUFFERS = S::SPAN / TERMS;

    Operands x;
    u32 batch, first_row, first_column;
    // Position of the warp within the tile.
    u32 row, column;
    float sum[MT][NT][4];

    DEVICE explicit Product(const Operands& given) : x(given), sum() {
        batch = blockIdx.z;
        first_row = blockIdx.y * C::M, first_column = blockIdx.x * C::N;
        const u32 warp = threadIdx.x / 32;
        row = warp / C::WARPS_N * MT * 16, column = warp % C::WARPS_N * NP * 16;
        x.a += (size_t)batch * A::BATCH, x.b += (size_t)batch * B::BATCH;
    }

    DEVICE u32 row_of(int m, int half) const {
        const u32 g = threadIdx.x % 32 / 4;
        return first_row + row + 16 * m + (A::ALONG ? g + 8 * half : 2 * g + half);
    }
    DEVICE u32 column_of(int pair) const { return first_column + column + 16 * pair + 4 * (threadIdx.x % 4); }

    DEVICE void fetch(float* stages, u32 buffer) const {
        float* to = stages + buffer % C::STAGES * STAGE;
        bring<A, C::THREADS, C::M, false>(to, x.a, first_row, S::ROWS, buffer * TERMS, S::INNER);
        bring<B, C::THREADS, C::N, true>(to + A_SIZE, x.b, first_column, S::COLUMNS, buffer * TERMS, S::INNER);
    }

    // The next buffer, after it has arrived; the load of the one after those in progress is started.
    DEVICE const float* next(float* stages, u32 buffer) const {
        wait_copies<C::STAGES - 2>();
        __syncthreads();
        if (buffer + C::STAGES - 1 < BUFFERS) fetch(stages, buffer + C::STAGES - 1);
        commit_copies();
        return stages + buffer % C::STAGES * STAGE;
    }

    DEVICE void run(float* stages) {
#pragma unroll
        for (u32 buffer = 0; buffer < C::STAGES - 1; ++buffer) {
            if (buffer < BUFFERS) fetch(stages, buffer);
            commit_copies();
        }
#pragma unroll 1
        for (u32 buffer = 0; buffer < BUFFERS; ++buffer) {
            const float* from = next(stages, buffer);
            take<C::M, C::N, MT, NP, A::ALONG, B::ALONG>(from, from + A_SIZE, row, column, sum);
        }
    }

    // Computes results that are not finite again.
    DEVICE void repair() {
        bool well = true;
#pragma unroll
        for (int i = 0; i < MT * NT * 4; ++i) well = well && finite(sum[i / 4 / NT][i / 4 % NT][i % 4]);
        if (well) return;
#pragma unroll
        for (int i = 0; i < MT * NT * 4; ++i) {
            const int n = i / 4 % NT;
            float& value = sum[i / 4 / NT][n][i % 4];
            const u32 r = row_of(i / 4 / NT, i % 4 / 2), c = column_of(n / 2) + 2 * (i % 2) + n % 2;
            if (finite(value) || r >= S::ROWS || c >= S::COLUMNS) continue;
            value = plain_sum<A, B>(x.a, x.b, r, c, 0, S::INNER);
        }
    }

    DEVICE void write() {
        auto place = [&](int i, size_t& at, u32& column) {
            const u32 r = row_of(i / 2 / NP, i / NP % 2);
            column = column_of(i % NP);
            at = (size_t)batch * W::BATCH + (size_t)r * W::STEP + column;
            return r < S::ROWS && column < S::COLUMNS;
        };
        auto values = [&](int i, float* to) {
#pragma unroll
            for (int j = 0; j < 4; ++j) to[j] = sum[i / 2 / NP][2 * (i % NP) + j % 2][2 * (i / NP % 2) + j / 2];
        };
        finish_all<W, MT * 2 * NP, 8, S::COLUMNS>(x, place, values);
    }
};

template <class C, class S, class A, class B, class W> DEVICE void split_product(const Operands& x) {
    extern __shared__ float4 shared[];
    Product<C, S, A, B, W> product(x);
    product.run(reinterpret_cast<float*>(shared));
    product.repair();
    product.write();
}
