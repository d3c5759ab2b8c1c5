// Philox numbers: block i of four holds elements 4 i .., under the counter [i, step, stream, 0].
template <class Y, bool NORMAL, u32 COUNT>
DEVICE void random_numbers(const u32* counter, Y* y, u32 stream, u32 key0, u32 key1) {
    const u32 block = blockIdx.x * 256 + threadIdx.x;
    if (block * 4 >= COUNT) return;
    u32 words[4];
    float z[4];
    philox(block, *counter, stream, 0, key0, key1, words);
    if (NORMAL) {
        normals(words, z);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) z[i] = unit_single(words[i]);
    }
    if (block * 4 + 4 <= COUNT) {
        store<4>(y + block * 4, z);
    } else {
        for (u32 i = 0; block * 4 + i < COUNT; ++i) y[block * 4 + i] = Cast<Y>::of(z[i]);
    }
}
