// Products of many rows with a resident matrix. A block keeps b in shared memory, split for single precision as in
// gemm_split_tf32.cu, and iterates over the rows of a. For Hopper's warpgroup instructions.

// Number of terms of a that a thread holds at once.
#define HELD 128

#define EIGHT(d, i) \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]), "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])

// sum (+)= a b for 64 rows, 8 terms and 128 or 64 columns.
template <int N> DEVICE void multiply_group(float* d, const u32* a, u64 b, int adds);
template <> DEVICE void multiply_group<128>(float* d, const u32* a, u64 b, int adds) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1; }\n"
        : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32), EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}
template <> DEVICE void multiply_group<64>(float* d, const u32* a, u64 b, int adds) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1; }\n"
        : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

// Prevents the compiler from reading results before the cores have finished.
template <int COUNT> DEVICE void settle(float* values) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// Position of b's element of term k and column n: groups of 8 columns x 4 terms. Terms and columns are ordered such
// that a thread's numbers of a, and those of the result, are contiguous in memory.
template <int N> DEVICE u32 stay_place(u32 k, u32 n) {
    const u32 group = k / 16 * 4 + k % 4, block = n / 16 * 2 + n % 2;
    return (group * (N / 8) + block) * 32 + n % 16 / 2 * 4 + k % 16 / 4;
}

// The descriptor of b for the cores, from step `step` of 8 terms on.
template <int N> DEVICE u64 stay_matrix(const float* b, u32 step) {
    const u64 at = (u32)__cvta_generic_to_shared(b + step * N * 8) >> 4;
    return at | (u64)(N / 8 * 128 >> 4) << 16 | (u64)(128 >> 4) << 32;
}

// Loads b, in two parts, to shared memory.
template <class B, int THREADS, int K, int N> DEVICE void stay_bring(const float* from, float* high, float* low) {
    constexpr int V = B::ALONG ? 4 : 2, COUNT = K * N / V;
#pragma unroll 16
    for (u32 i = threadIdx.x; i < COUNT; i += THREADS) {
        // Lanes: four places in 16 terms, then 8 in 16 columns.
        const u32 t = i % 4, c = i / 4 % 8, rest = i / 32;
        u32 k, n;
        if (B::ALONG) n = rest % (N / 8) / 2 * 16 + 2 * c + rest % 2, k = rest / (N / 8) * 16 + 4 * t;
        else n = rest % (N / 16) * 16 + 2 * c, k = rest / (N / 16) / 4 * 16 + 4 * t + rest / (N / 16) % 4;
        float value[V];
        load<V>(from + (B::ALONG ? (size_t)n * B::STEP + k : (size_t)k * B::STEP + n), value);
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const u32 at = B::ALONG ? stay_place<N>(k + j, n) : stay_place<N>(k, n + j);
            u32 upper, lower;
            halves(value[j], upper, lower);
            high[at] = __uint_as_float(upper), low[at] = __uint_as_float(lower);
        }
    }
}

// Starts loading 64 rows and HELD terms of a; groups of four numbers are permuted so that lanes read without bank
// conflicts.
template <class A, int K> DEVICE void stay_rows(float* to, const float* from, u32 first, u32 rows, u32 term) {
    constexpr int WIDTH = K < HELD ? K : HELD, PER = WIDTH / 4;
    const u32 thread = threadIdx.x % 128;
#pragma unroll
    for (int round = 0; round < 64 * PER / 128; ++round) {
        const u32 i = round * 128 + thread, r = i / PER, q = i % PER;
        const bool there = first + r < rows;
        copy_async_numbers<4>(to + r * WIDTH + ((q ^ ((r & 1) << 2)) << 2), there ? from + (size_t)(first + r) * A::STEP + term + 4 * q : from, there);
    }
    commit_copies();
}

// Waits for the other three warps of the group.
DEVICE void stay_meet() { asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory"); }

// sum = a b over STEPS steps, the small products first, so that less is truncated.
template <int N, int STEPS>
DEVICE void stay_multiply(float* sum, const u32 (*upper)[4], const u32 (*lower)[4], const float* high, const float* low) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int s = 0; s < STEPS; ++s) multiply_group<N>(sum, lower[s], stay_matrix<N>(high, s), s > 0);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) multiply_group<N>(sum, upper[s], stay_matrix<N>(low, s), 1);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) multiply_group<N>(sum, upper[s], stay_matrix<N>(high, s), 1);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    settle<N / 2>(sum);
}

// Four times four neighbours of the result's operands, the ones that this thread will use: ITEMS of them.
template <int ITEMS, class Place> DEVICE void stay_operands(float* to, const float* from, const Place& place) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        size_t at;
        u32 column;
        const bool there = place(i, at, column);
        copy_async_numbers<4>(to + (i * 128 + threadIdx.x % 128) * 4, there ? from + at : from, there);
    }
}

// K terms in all, N columns per block (blockIdx.y counts them), one matrix of a batch per blockIdx.z.
template <class S, class A, class B, class W, int N, int GROUPS> DEVICE void resident_product(Operands x) {
    constexpr int K = S::INNER, WIDTH = K < HELD ? K : HELD, STEPS = WIDTH / 8, PASSES = K / WIDTH;
    constexpr u32 TILES = (S::ROWS + 63) / 64;
    extern __shared__ float4 shared[];
    float* const high = reinterpret_cast<float*>(shared);
    float* const low = high + K * N;
    const u32 group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float* const rows = low + K * N + group * 64 * WIDTH;
    float* const added = low + K * N + GROUPS * 64 * WIDTH + group * 64 * N * (W::ADD + (W::SLOPE > 0));
    float* const slopes = added + (W::ADD ? 64 * N : 0);
    const u32 first_column = blockIdx.y * N, batch = blockIdx.z;
    x.a += (size_t)batch * A::BATCH, x.b += (size_t)batch * B::BATCH + (B::ALONG ? (size_t)first_column * B::STEP : first_column);
    u32 tile = blockIdx.x * GROUPS + group;
    if (tile < TILES) stay_rows<A, K>(rows, x.a, tile * 64, S::ROWS, 0);
    stay_bring<B, 128 * GROUPS, K, N>(x.b, high, low);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    for (; tile < TILES; tile += gridDim.x * GROUPS) {
        auto place = [&](int i, size_t& at, u32& column) {
            const u32 r = tile * 64 + 16 * warp + g + 8 * (i % 2);
            column = first_column + 16 * (i / 2) + 4 * t;
            at = (size_t)batch * W::BATCH + (size_t)r * W::STEP + column;
            return r < S::ROWS;
        };
        float sum[N / 2], part[N / 2];
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            u32 upper[STEPS][4], lower[STEPS][4];
            wait_copies<0>();
            stay_meet();
#pragma unroll
            for (int i = 0; i < STEPS; ++i) {
                const int q = i / 2, half = i % 2;
                const u32 r = 16 * warp + g + 8 * half;
                float value[4];
                load<4>(rows + r * WIDTH + (((4 * q + t) ^ ((r & 1) << 2)) << 2), value);
#pragma unroll
                for (int j = 0; j < 4; ++j) halves(value[j], upper[2 * q + j / 2][half + j % 2 * 2], lower[2 * q + j / 2][half + j % 2 * 2]);
            }
            stay_meet();
            const bool more = pass + 1 < PASSES;
            const u32 next = more ? tile : tile + gridDim.x * GROUPS;
            // Operands of the epilogue are loaded first, then the next rows.
            if (W::ADD && pass == 0) stay_operands<N / 8>(added, x.add, place);
            if (W::SLOPE && pass == 0) stay_operands<N / 8>(slopes, x.slope, place);
            commit_copies();
            if (next < TILES) stay_rows<A, K>(rows, x.a, next * 64, S::ROWS, more ? (pass + 1) * WIDTH : 0);
            else commit_copies();
            stay_multiply<N, STEPS>(part, upper, lower, high + pass * STEPS * N * 8, low + pass * STEPS * N * 8);
#pragma unroll
            for (int i = 0; i < N / 2; ++i) sum[i] = pass > 0 ? sum[i] + part[i] : part[i];
        }
        auto values = [&](int i, float* to) {
            bool well = true;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                to[j] = sum[8 * (i / 2) + j % 2 * 4 + 2 * (i % 2) + j / 2];
                well = well && finite(to[j]);
            }
            if (well) return;
            const u32 r = tile * 64 + 16 * warp + g + 8 * (i % 2), c = 16 * (i / 2) + 4 * t;
#pragma unroll
            for (int j = 0; j < 4; ++j) to[j] = plain_sum<A, B>(x.a, x.b, r, c + j, 0, K);
        };
        wait_copies<1>();
#pragma unroll
        for (int i = 0; i < N / 8; ++i) {
            size_t at;
            u32 column;
            if (!place(i, at, column)) continue;
            float value[4], plus[4], slope[4], other[4];
            values(i, value);
            if (W::BIAS) load<4>(x.bias + column, plus);
            if (W::ADD) load<4>(added + (i * 128 + threadIdx.x % 128) * 4, other);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (W::ADD) plus[j] = W::BIAS ? plus[j] + other[j] : other[j];
            }
            if (W::SLOPE) load<4>(slopes + (i * 128 + threadIdx.x % 128) * 4, slope);
            finish<W>(x, value, plus, slope, at, 4);
        }
    }
}
