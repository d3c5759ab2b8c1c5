// Products of a long matrix with a short one by warpgroups of four warps (sm_90a). A block keeps WIDE columns of the
// short matrix in shared memory. Two pairs of warpgroups iterate over the rows of the long one, 64 at a time, half of
// the columns each. One pair multiplies while the other runs its epilogue: bias and GELU, or GELU's slope and sums over
// rows. Four more warps load the rows in chunks of 64 elements, with a ring of RING chunks for each pair.

#define WIDE 192
#define RING 5

DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void workers_barrier() { asm volatile("bar.sync 1, 512;" ::: "memory"); }
DEVICE void gate_init(u32 gate, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gate), "r"(count) : "memory"); }
DEVICE void gate_arrive(u32 gate) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gate) : "memory"); }
DEVICE void gate_wait(u32 gate, u32 parity) {
    u32 open;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(open) : "r"(gate), "r"(parity) : "memory");
    } while (!open);
}
template <int COUNT> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> DEVICE void await_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// Rows of 64 elements in shared memory, with their eight parts permuted by the row, as the tensor cores read them.
DEVICE u64 description(u32 address) { return (u64)((address & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
DEVICE u32 swizzled(u32 row, u32 part) { return row * 128 + (part ^ (row % 8)) * 16; }

// d += a b for 64 rows of a and 96 columns of b in shared memory, 16 terms.
DEVICE void warpgroup_multiply_add(float (&d)[48], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
        "}, %48, %49, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "l"(a), "l"(b));
}

// The column of the accumulator's column c: a thread has eight neighbours, four threads have 32.
DEVICE u32 column_of(u32 c) { return c / 32 * 32 + c % 8 / 2 * 8 + c / 8 % 4 * 2 + c % 2; }

// The columns of one panel of the short matrix, [K, N] or transposed [N, K].
template <u32 N, u32 K, bool TURNED> DEVICE void load_panel(const bf16* weight, u32 panel, u32 to) {
    for (u32 i = threadIdx.x; i < WIDE * (K / 8); i += 640) {
        if (TURNED) {
            const u32 row = i / (K / 8), part = i % (K / 8);
            copy_async(to + part / 8 * (WIDE * 128) + swizzled(row, part % 8), weight + (size_t)(panel * WIDE + column_of(row)) * K + part * 8);
        } else {
            const u32 row = i % WIDE, part = i / WIDE;
            const bf16* from = weight + (size_t)part * 8 * N + panel * WIDE + column_of(row);
            u32 words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) words[j] = (u32)from[(size_t)(2 * j) * N].bits | (u32)from[(size_t)(2 * j + 1) * N].bits << 16;
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to + part / 8 * (WIDE * 128) + swizzled(row, part % 8)), "r"(words[0]), "r"(words[1]),
                         "r"(words[2]), "r"(words[3])
                         : "memory");
        }
    }
}

DEVICE float half_of(const u32 (&words)[4], int i) { return __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16); }

DEVICE void read_four(u32 (&words)[4], const bf16* from) {
    const uint4 pack = *reinterpret_cast<const uint4*>(from);
    words[0] = pack.x;
    words[1] = pack.y;
    words[2] = pack.z;
    words[3] = pack.w;
}

// GELU and its slope with few instructions: sigmoid(z) = 1 / (1 + 2^-z log2 e).
DEVICE float quick_sigmoid(float x, float square) {
    constexpr float SLOPE = -GELU_SCALE * 1.4426950408889634f;
    float power, y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * (SLOPE + SLOPE * GELU_CUBE * square)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + power));
    return y;
}
// Clamping where the sigmoid is 0 or 1, in one instruction each; NaN stays NaN. Infinity times 0 would be NaN.
DEVICE float not_below(float x, float low) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
    return y;
}
DEVICE float not_above(float x, float high) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(high));
    return y;
}
DEVICE float quick_gelu(float x) {
    x = not_below(x, -GELU_FLAT);
    return x * quick_sigmoid(x, x * x);
}
DEVICE float quick_gelu_slope(float x) {
    x = not_above(not_below(x, -GELU_FLAT), GELU_FLAT);
    const float square = x * x, s = quick_sigmoid(x, square);
    const float steep = x * (GELU_SCALE + 3.0f * GELU_SCALE * GELU_CUBE * square);
    return s + s * (steep - s * steep);
}

// One product of M x K and K x N. A block has a panel of columns and every `blocks`-th pair of 64 rows. With SLOPE, out
// = (a weight) gelu'(kept), and with SUMS its sums over rows. Otherwise kept = a weight + bias and out = gelu(kept).
template <u32 M, u32 N, u32 K, bool TURNED, bool SLOPE, bool SUMS, class B, class S>
DEVICE void gelu_product(const bf16* a, const bf16* weight, const B* bias, bf16* kept, bf16* out, S* sums, float* partial, u32* tickets) {
    constexpr u32 PANELS = N / WIDE, CHUNKS = K / 64, TILES = (M + 63) / 64;
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 panel_at = (u32)__cvta_generic_to_shared(memory), rings = panel_at + K * WIDE * 2, gates = rings + 2 * RING * 8192;
    const u32 lane = threadIdx.x % 32, panel = blockIdx.x % PANELS, share = blockIdx.x / PANELS, blocks = gridDim.x / PANELS;
    const u32 stride = blocks * 2;
    load_panel<N, K, TURNED>(weight, panel, panel_at);
    commit_copies();
    if (threadIdx.x < 2 * RING) {
        gate_init(gates + threadIdx.x * 16, 1);
        gate_init(gates + threadIdx.x * 16 + 8, 8);
    }
    wait_copies<0>();
    publish();
    __syncthreads();
    if (threadIdx.x >= 512) {
        // Two of these warps serve a pair, with alternate chunks.
        fewer_registers<24>();
        const u32 group = threadIdx.x / 64 % 2, odd = threadIdx.x / 32 % 2;
        const u32 even_row = swizzled(lane / 8, lane % 8), odd_row = swizzled(lane / 8 + 4, lane % 8);
        u32 slot = odd, turn = 0, chunk = odd % CHUNKS;
        for (u32 tile = share * 2 + group + odd / CHUNKS * stride; tile < TILES;) {
            const u32 ring = rings + (group * RING + slot) * 8192, gate = gates + (group * RING + slot) * 16;
            if (turn > 0) gate_wait(gate + 8, (turn - 1) % 2);
            const u32 first = tile * 64 + lane / 8;
            const bf16* from = a + (size_t)first * K + chunk * 64 + lane % 8 * 8;
#pragma unroll
            for (u32 i = 0; i < 16; ++i) {
                const bool inside = M % 64 == 0 || first + i * 4 < M;
                copy_async(ring + i / 2 * 1024 + (i % 2 ? odd_row : even_row), inside ? from + i * 4 * K : a);
            }
            commit_copies();
            wait_copies<0>();
            publish();
            __syncwarp();
            if (lane == 0) gate_arrive(gate);
            slot += 2;
            if (slot >= RING) {
                slot -= RING;
                ++turn;
            }
            tile += (chunk + 2) / CHUNKS * stride;
            chunk = (chunk + 2) % CHUNKS;
        }
        return;
    }
    more_registers<112>();
    const u32 group = threadIdx.x / 256, half = threadIdx.x / 128 % 2, warp = threadIdx.x / 32 % 4, start = share * 2 + group;
    const u32 ring = rings + group * RING * 8192, gate = gates + group * RING * 16;
    const u32 first_column = panel * WIDE + half * (WIDE / 2) + lane % 4 * 8;
    float along[24];
#pragma unroll
    for (int i = 0; i < 24; ++i) along[i] = SLOPE ? 0.0f : real(bias[first_column + i / 8 * 32 + i % 8]);
    u32 slot = 0, turn = 0, last = 0;
    for (u32 tile = start; tile < TILES; tile += stride) {
        const u32 row = tile * 64 + warp * 16 + lane / 4;
        u32 before[SLOPE ? 6 : 1][4];
        if (SLOPE) {
#pragma unroll
            for (int i = 0; i < 6; ++i) {
                u32 m = row + i / 3 * 8;
                if (M % 64 != 0 && m >= M) m = M - 1;
                read_four(before[SLOPE ? i : 0], kept + (size_t)m * N + first_column + i % 3 * 32);
            }
        }
        float d[48];
#pragma unroll
        for (int i = 0; i < 48; ++i) d[i] = 0.0f;
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) {
            gate_wait(gate + slot * 16, turn % 2);
            const u64 left = description(ring + slot * 8192), right = description(panel_at + chunk * (WIDE * 128) + half * (WIDE * 64));
            products_begin();
#pragma unroll
            for (int k = 0; k < 4; ++k) warpgroup_multiply_add(d, left + 2 * k, right + 2 * k);
            products_commit();
            await_products<1>();
            if (chunk > 0 && lane == 0) gate_arrive(gate + last * 16 + 8);
            last = slot;
            if (++slot == RING) {
                slot = 0;
                ++turn;
            }
        }
        await_products<0>();
        if (lane == 0) gate_arrive(gate + last * 16 + 8);
#pragma unroll
        for (int i = 0; i < 6; ++i) {
            const u32 m = row + i / 3 * 8;
            const bool inside = M % 64 == 0 || m < M;
            u32 first[4], second[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                float value[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int column = i % 3 * 8 + 2 * p + e;
                    const float x = d[(i % 3 * 4 + p) * 4 + i / 3 * 2 + e];
                    if (SLOPE) {
                        value[e] = x * quick_gelu_slope(half_of(before[SLOPE ? i : 0], 2 * p + e));
                        if (SUMS && inside) along[column] += value[e];
                    } else {
                        value[e] = x + along[column];
                    }
                }
                first[p] = round_pair(value[0], value[1]);
                if (!SLOPE) second[p] = round_pair(quick_gelu(value[0]), quick_gelu(value[1]));
            }
            if (!inside) continue;
            const size_t at = (size_t)m * N + first_column + i % 3 * 32;
            *reinterpret_cast<uint4*>((SLOPE ? out : kept) + at) = make_uint4(first[0], first[1], first[2], first[3]);
            if (!SLOPE) *reinterpret_cast<uint4*>(out + at) = make_uint4(second[0], second[1], second[2], second[3]);
        }
    }
    if (!SUMS) return;
    // Sums over the warp's rows, the block's warps, and the panel's blocks.
    workers_barrier();
    float* shared = reinterpret_cast<float*>(memory);
    u32* arrived = reinterpret_cast<u32*>(shared + 16 * WIDE);
#pragma unroll
    for (int i = 0; i < 24; ++i) {
        float sum = along[i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        if (lane < 4) shared[(group * 4 + warp) * WIDE + half * (WIDE / 2) + lane * 8 + i / 8 * 32 + i % 8] = sum;
    }
    workers_barrier();
    if (threadIdx.x < WIDE) {
        float sum = 0.0f;
        for (u32 w = 0; w < 8; ++w) sum += shared[w * WIDE + threadIdx.x];
        partial[(size_t)share * N + panel * WIDE + threadIdx.x] = sum;
    }
    __threadfence();
    workers_barrier();
    if (threadIdx.x == 0) {
        *arrived = atomicAdd(tickets + panel, 1u);
        if (*arrived == blocks - 1) tickets[panel] = 0u;
    }
    workers_barrier();
    if (*arrived != blocks - 1) return;
    __threadfence();
    if (threadIdx.x < WIDE) {
        float sum = 0.0f;
        for (u32 b = 0; b < blocks; ++b) sum += __ldcg(partial + (size_t)b * N + panel * WIDE + threadIdx.x);
        sums[panel * WIDE + threadIdx.x] = Cast<S>::of(sum);
    }
}
