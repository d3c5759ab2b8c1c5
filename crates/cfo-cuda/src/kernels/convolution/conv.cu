// Padding and its adjoint, and convolutions by the definition for shapes that the library does not support.

// Limit of the iteration over an axis of the padded field that collects the copies of one position.
template <int MODE, u32 LENGTH, u32 BEFORE, u32 PADDED> DEVICE void fold_range(u32 position, u32& first, u32& end, u32& step) {
    if (MODE == 1) {
        first = (position + BEFORE) % LENGTH;
        end = PADDED;
        step = LENGTH;
    } else {
        first = MODE == 2 && position == 0 ? 0 : position + BEFORE;
        end = MODE == 2 && position == LENGTH - 1 ? PADDED : position + BEFORE + 1;
        step = 1;
    }
}

// The position of the field for a position of the padded axis; -1 for zero. Modes: 0 zeros, 1 circular, 2 replicate.
template <int MODE, u32 LENGTH, u32 BEFORE> DEVICE int pad_source(u32 position) {
    if (position >= BEFORE && position - BEFORE < LENGTH) return (int)(position - BEFORE);
    if (MODE == 0) return -1;
    if (MODE == 1) return (int)((position + LENGTH * ((BEFORE + LENGTH - 1) / LENGTH) - BEFORE) % LENGTH);
    return position < BEFORE ? 0 : (int)LENGTH - 1;
}

template <class X, class Y, int V, int MODE, u32 H, u32 W, u32 C, u32 TOP, u32 LEFT, u32 HP, u32 WP, u64 COUNT>
DEVICE void pad(const X* x, Y* y) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    const u32 c = (u32)(at % (C / V)) * V;
    const u64 pixel = at / (C / V);
    const u32 j = (u32)(pixel % WP);
    const u64 line = pixel / WP;
    const int row = pad_source<MODE, H, TOP>((u32)(line % HP)), column = pad_source<MODE, W, LEFT>(j);
    float value[V] = {};
    if (row >= 0 && column >= 0) load<V>(x + ((line / HP * H + row) * W + column) * C + c, value);
    store<V>(y + at * V, value);
}

template <class X, class Y, int V, int MODE, u32 H, u32 W, u32 C, u32 TOP, u32 LEFT, u32 HP, u32 WP, u64 COUNT>
DEVICE void fold(const X* x, Y* y) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    const u32 c = (u32)(at % (C / V)) * V;
    const u64 pixel = at / (C / V);
    const u32 j = (u32)(pixel % W), i = (u32)(pixel / W % H);
    const u64 sample = pixel / W / H;
    u32 top, bottom, down, left, right, along;
    fold_range<MODE, H, TOP, HP>(i, top, bottom, down);
    fold_range<MODE, W, LEFT, WP>(j, left, right, along);
    float sum[V] = {};
    for (u32 row = top; row < bottom; row += down) {
        for (u32 column = left; column < right; column += along) {
            float value[V];
            load<V>(x + ((sample * HP + row) * WP + column) * C + c, value);
#pragma unroll
            for (int k = 0; k < V; ++k) sum[k] += value[k];
        }
    }
    store<V>(y + at * V, sum);
}

// x [B, H, W, CI], w [CO, KH, KW, CI], y [B, HO, WO, CO].
template <u32 B_, u32 H_, u32 W_, u32 CI_, u32 CO_, u32 KH_, u32 KW_, u32 HO_, u32 WO_, int SH_, int SW_, int PH_, int PW_> struct Geometry {
    static constexpr u32 B = B_, H = H_, W = W_, CI = CI_, CO = CO_, KH = KH_, KW = KW_, HO = HO_, WO = WO_;
    static constexpr int SH = SH_, SW = SW_, PH = PH_, PW = PW_;
};

template <class T, class K> DEVICE void conv_forward(const T* x, const T* w, T* y) {
    u64 rest = (u64)blockIdx.x * 256 + threadIdx.x;
    const u64 at = rest;
    if (at >= (u64)K::B * K::HO * K::WO * K::CO) return;
    const u32 o = (u32)(rest % K::CO);
    rest /= K::CO;
    const int j = (int)(rest % K::WO);
    rest /= K::WO;
    const int i = (int)(rest % K::HO);
    const u64 b = rest / K::HO;
    float sum = 0.0f;
    for (int p = 0; p < (int)K::KH; ++p) {
        const int row = i * K::SH + p - K::PH;
        if (row < 0 || row >= (int)K::H) continue;
        for (int q = 0; q < (int)K::KW; ++q) {
            const int column = j * K::SW + q - K::PW;
            if (column < 0 || column >= (int)K::W) continue;
            const T* from = x + ((b * K::H + row) * K::W + column) * K::CI;
            const T* by = w + ((o * K::KH + p) * K::KW + q) * K::CI;
            for (u32 c = 0; c < K::CI; ++c) sum += real(from[c]) * real(by[c]);
        }
    }
    y[at] = Cast<T>::of(sum);
}

template <class T, class K> DEVICE void conv_input(const T* dy, const T* w, T* dx) {
    u64 rest = (u64)blockIdx.x * 256 + threadIdx.x;
    const u64 at = rest;
    if (at >= (u64)K::B * K::H * K::W * K::CI) return;
    const u32 c = (u32)(rest % K::CI);
    rest /= K::CI;
    const int column = (int)(rest % K::W);
    rest /= K::W;
    const int row = (int)(rest % K::H);
    const u64 b = rest / K::H;
    float sum = 0.0f;
    for (int p = 0; p < (int)K::KH; ++p) {
        const int i = row + K::PH - p;
        if (i < 0 || i % K::SH != 0 || i / K::SH >= (int)K::HO) continue;
        for (int q = 0; q < (int)K::KW; ++q) {
            const int j = column + K::PW - q;
            if (j < 0 || j % K::SW != 0 || j / K::SW >= (int)K::WO) continue;
            const T* from = dy + ((b * K::HO + i / K::SH) * K::WO + j / K::SW) * K::CO;
            for (u32 o = 0; o < K::CO; ++o) sum += real(from[o]) * real(w[((o * K::KH + p) * K::KW + q) * K::CI + c]);
        }
    }
    dx[at] = Cast<T>::of(sum);
}

// One block per weight.
template <class T, class K> DEVICE void conv_weight(const T* x, const T* dy, T* dw) {
    u32 rest = blockIdx.x;
    const u32 c = rest % K::CI;
    rest /= K::CI;
    const int q = (int)(rest % K::KW);
    rest /= K::KW;
    const int p = (int)(rest % K::KH);
    const u32 o = rest / K::KH;
    float sum = 0.0f;
    for (u64 at = threadIdx.x; at < (u64)K::B * K::HO * K::WO; at += 256) {
        const int j = (int)(at % K::WO), i = (int)(at / K::WO % K::HO);
        const u64 b = at / K::WO / K::HO;
        const int row = i * K::SH + p - K::PH, column = j * K::SW + q - K::PW;
        if (row < 0 || row >= (int)K::H || column < 0 || column >= (int)K::W) continue;
        sum += real(x[((b * K::H + row) * K::W + column) * K::CI + c]) * real(dy[at * K::CO + o]);
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) dw[blockIdx.x] = Cast<T>::of(sum);
}

// The patches of a convolution, one row per position: [B HO WO, KH KW CI]; zeros outside the field.
template <class T, int V, class K> DEVICE void gather_patches(const T* x, T* patches) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    constexpr u32 WIDTH = K::KH * K::KW * K::CI / V;
    if (at >= (u64)K::B * K::HO * K::WO * WIDTH) return;
    const u32 inside = (u32)(at % WIDTH);
    const u64 position = at / WIDTH;
    const u32 c = inside % (K::CI / V) * V, tap = inside / (K::CI / V);
    const int column = (int)(position % K::WO) * K::SW + (int)(tap % K::KW) - K::PW;
    const int row = (int)(position / K::WO % K::HO) * K::SH + (int)(tap / K::KW) - K::PH;
    float value[V] = {};
    if (row >= 0 && row < (int)K::H && column >= 0 && column < (int)K::W)
        load<V>(x + ((position / K::WO / K::HO * K::H + row) * K::W + column) * K::CI + c, value);
    store<V>(patches + at * V, value);
}

// The adjoint: adds every patch to the field.
template <class T, int V, class K> DEVICE void scatter_patches(const T* patches, T* dx) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= (u64)K::B * K::H * K::W * (K::CI / V)) return;
    const u32 c = (u32)(at % (K::CI / V)) * V;
    const u64 pixel = at / (K::CI / V);
    const int column = (int)(pixel % K::W), row = (int)(pixel / K::W % K::H);
    const u64 b = pixel / K::W / K::H;
    float sum[V] = {};
#pragma unroll
    for (int p = 0; p < (int)K::KH; ++p) {
        const int i = row + K::PH - p;
        if (i < 0 || i % K::SH != 0 || i / K::SH >= (int)K::HO) continue;
#pragma unroll
        for (int q = 0; q < (int)K::KW; ++q) {
            const int j = column + K::PW - q;
            if (j < 0 || j % K::SW != 0 || j / K::SW >= (int)K::WO) continue;
            float value[V];
            load<V>(patches + (((b * K::HO + i / K::SH) * K::WO + j / K::SW) * (K::KH * K::KW) + p * K::KW + q) * K::CI + c, value);
#pragma unroll
            for (int k = 0; k < V; ++k) sum[k] += value[k];
        }
    }
    store<V>(dx + at * V, sum);
}
