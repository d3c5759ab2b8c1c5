// Definitions for all kernels: numbers, vector access, functions, reductions. No header is included, so that the
// compiler library alone suffices. FAST is 1 where sums are rounded to tf32 or bf16 anyway.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define DEVICE __device__ __forceinline__
#define INFINITE __int_as_float(0x7f800000)

struct bf16 {
    u16 bits;
};

// IEEE half precision.
struct fp16 {
    u16 bits;
};

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

DEVICE float real(float x) { return x; }
DEVICE float real(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

DEVICE float real(fp16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// Two numbers rounded to bf16, the first in the lower half.
DEVICE u32 round_pair(float low, float high) {
    u32 pair;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    u32 a = __float_as_uint(low), b = __float_as_uint(high);
    a = (low != low) ? 0x7fff0000u : a + 0x7fffu + ((a >> 16) & 1u);
    b = (high != high) ? 0x7fff0000u : b + 0x7fffu + ((b >> 16) & 1u);
    pair = (a >> 16) | (b & 0xffff0000u);
#endif
    return pair;
}

// Two numbers rounded to fp16, the first in the lower half.
DEVICE u32 short_pair(float low, float high) {
    u16 a, b;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(a) : "f"(low));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(high));
    return (u32)a | (u32)b << 16;
}

template <class T> struct Cast;
template <> struct Cast<float> {
    static DEVICE float of(float x) { return x; }
};
template <> struct Cast<bf16> {
    static DEVICE bf16 of(float x) {
        bf16 y;
        y.bits = (u16)round_pair(x, 0.0f);
        return y;
    }
};

template <int N> DEVICE void load(const float* from, float* to) {
    Pack<float, N> pack = *reinterpret_cast<const Pack<float, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = pack.at[i];
}

template <int N> DEVICE void load(const bf16* from, float* to) {
    Pack<bf16, N> pack = *reinterpret_cast<const Pack<bf16, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = real(pack.at[i]);
}

template <int N> DEVICE void store(float* to, const float* from) {
    Pack<float, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = from[i];
    *reinterpret_cast<Pack<float, N>*>(to) = pack;
}

template <int N> DEVICE void store(bf16* to, const float* from) {
    if (N == 1) {
        *to = Cast<bf16>::of(from[0]);
    } else {
        constexpr int HALF = N > 1 ? N / 2 : 1;
        Pack<u32, HALF> pack;
#pragma unroll
        for (int i = 0; i < HALF; ++i) pack.at[i] = round_pair(from[2 * i], from[(2 * i + 1) % N]);
        *reinterpret_cast<Pack<u32, HALF>*>(to) = pack;
    }
}

template <int N> DEVICE void store(fp16* to, const float* from) {
    if (N == 1) {
        to->bits = (u16)short_pair(from[0], 0.0f);
    } else {
        constexpr int HALF = N > 1 ? N / 2 : 1;
        Pack<u32, HALF> pack;
#pragma unroll
        for (int i = 0; i < HALF; ++i) pack.at[i] = short_pair(from[2 * i], from[(2 * i + 1) % N]);
        *reinterpret_cast<Pack<u32, HALF>*>(to) = pack;
    }
}

// Functions of one number, as defined in cfo-cpu/src/scalar.rs.

DEVICE float f_exp(float x) { return FAST ? __expf(x) : expf(x); }
DEVICE float f_divide(float a, float b) {
    if (!FAST) return a / b;
    // Two units in the last place for all operands; __fdividef gives 0 for divisors above 2^126.
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEVICE float f_reciprocal(float x) { return 1.0f / x; }
DEVICE float f_sigmoid(float x) {
    // The error of this reciprocal is at most one unit in the last place.
    const float below = 1.0f + f_exp(-x);
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(below));
    return y;
}
// x clamped to two bounds; NaN stays NaN. The sigmoids in SiLU and GELU are exactly 0 or 1 beyond theirs, and infinity
// times 0 would be NaN.
DEVICE float f_within(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}
#define SILU_FLAT 800.0f
#define GELU_FLAT 40.0f
DEVICE float f_silu(float x) {
    x = x < -SILU_FLAT ? -SILU_FLAT : x;
    return x * f_sigmoid(x);
}
DEVICE float f_silu_slope(float x) {
    x = f_within(x, -SILU_FLAT, SILU_FLAT);
    float s = f_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}
#define GELU_SCALE 1.5957691216057309f
#define GELU_CUBE 0.044715f
DEVICE float f_gelu(float x) {
    x = x < -GELU_FLAT ? -GELU_FLAT : x;
    return x * f_sigmoid(GELU_SCALE * x * (1.0f + GELU_CUBE * x * x));
}
DEVICE float f_gelu_slope(float x) {
    x = f_within(x, -GELU_FLAT, GELU_FLAT);
    float square = x * x;
    float s = f_sigmoid(GELU_SCALE * x * (1.0f + GELU_CUBE * square));
    return s + s * (1.0f - s) * (x * (GELU_SCALE + 3.0f * GELU_SCALE * GELU_CUBE * square));
}
DEVICE float f_larger(float a, float b) { return (a > b || a != a) ? a : b; }
DEVICE float f_smaller(float a, float b) { return (a < b || a != a) ? a : b; }
DEVICE float f_relu(float x) { return f_larger(x, 0.0f); }
DEVICE float f_step(float x) { return x > 0.0f ? 1.0f : 0.0f; }
DEVICE float f_sign(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : 0.0f); }

// Activations by number: 0 none, 1 ReLU, 2 SiLU, 3 GELU.
template <int A> DEVICE float activate(float x) {
    return A == 1 ? f_relu(x) : A == 2 ? f_silu(x) : A == 3 ? f_gelu(x) : x;
}
template <int A> DEVICE float activate_slope(float x) {
    return A == 1 ? f_step(x) : A == 2 ? f_silu_slope(x) : A == 3 ? f_gelu_slope(x) : 1.0f;
}

// Sums over a warp and over a block; every thread gets the result.

DEVICE float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <int THREADS> DEVICE float block_sum(float x) {
    __shared__ float parts[32];
    x = warp_sum(x);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = x;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) sum += parts[i];
    return sum;
}

// Whether this block is the last of `blocks` to arrive; the ticket is reset to 0 for the next launch. The last block
// sees all writes of the others.
DEVICE bool last_block(u32* ticket, u32 blocks) {
    __shared__ u32 arrived;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived = atomicAdd(ticket, 1u);
        if (arrived == blocks - 1) *ticket = 0u;
    }
    __syncthreads();
    bool last = arrived == blocks - 1;
    if (last) __threadfence();
    return last;
}

// Philox4x32-10.
DEVICE void philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1, u32* out) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        if (round > 0) {
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// The upper 24 bits of a word as a number in [0, 1).
DEVICE float unit_single(u32 word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

// Two words as a number in [0, 1) with 53 random bits.
DEVICE double unit_double(u32 low, u32 high) {
    return (double)((((u64)high << 32) | low) >> 11) * (1.0 / 9007199254740992.0);
}

// Maps a word uniformly to 0 .. count.
DEVICE u32 scaled(u32 word, u32 count) { return __umulhi(word, count); }

// Four standard normal numbers by the Box-Muller transform.
DEVICE void normals(const u32* words, float* z) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
        double radius = sqrt(-2.0 * log((double)(1.0f - unit_single(words[2 * pair]))));
        double sine, cosine;
        sincos(6.283185307179586476925286766559 * (double)unit_single(words[2 * pair + 1]), &sine, &cosine);
        z[2 * pair] = (float)(radius * cosine);
        z[2 * pair + 1] = (float)(radius * sine);
    }
}
