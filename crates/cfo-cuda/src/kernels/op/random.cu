// Philox numbers: block i of four holds elements 4 i .. of a row, with the counter [i, step, stream, number]. With
// GIVEN, every row has its step and its number. Otherwise rows are numbered from `first` on, and a tensor of one row
// has the number 0.
template <class Y, bool NORMAL, bool GIVEN, u32 ROWS, u32 SIZE>
DEVICE void random_numbers(const u32* counter, Y* y, u32 stream, u32 key0, u32 key1, u32 first) {
    constexpr u32 BLOCKS = (SIZE + 3) / 4;
    const u32 at = blockIdx.x * 256 + threadIdx.x, row = at / BLOCKS, block = at % BLOCKS;
    if (row >= ROWS) return;
    u32 words[4];
    float z[4];
    philox(block, GIVEN ? counter[2 * row] : *counter, stream, GIVEN ? counter[2 * row + 1] : first + row, key0, key1, words);
    if (NORMAL) {
        normals(words, z);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) z[i] = unit_single(words[i]);
    }
    y += (u64)row * SIZE + block * 4;
    if (SIZE % 4 == 0) {
        store<4>(y, z);
    } else {
        for (u32 i = 0; i < 4 && block * 4 + i < SIZE; ++i) y[i] = Cast<Y>::of(z[i]);
    }
}
