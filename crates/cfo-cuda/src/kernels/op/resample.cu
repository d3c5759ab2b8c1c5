// Fields on grids of another size, and the transpose of this map.


// Position of point `to` of NEW among OLD points: two neighbours and the weight of the second.
template <bool LINEAR, u32 NEW, u32 OLD> DEVICE void neighbors(u32 to, u32& first, u32& second, float& weight) {
    if (!LINEAR) {
        first = second = (u32)((u64)(2 * to + 1) * OLD / (2 * NEW));
        weight = 0.0f;
        return;
    }
    const double at = fmax(((double)to + 0.5) * (double)OLD / (double)NEW - 0.5, 0.0);
    first = (u32)at < OLD - 1 ? (u32)at : OLD - 1;
    second = first + 1 < OLD - 1 ? first + 1 : OLD - 1;
    weight = second == first ? 0.0f : (float)(at - (double)first);
}

template <class X, class Y, int V, bool LINEAR, u32 H, u32 W, u32 C, u32 HN, u32 WN, u64 COUNT> DEVICE void resample(const X* x, Y* y) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    const u32 c = (u32)(at % (C / V)) * V;
    const u64 pixel = at / (C / V);
    u32 top, bottom, left, right;
    float down, along;
    neighbors<LINEAR, HN, H>((u32)(pixel / WN % HN), top, bottom, down);
    neighbors<LINEAR, WN, W>((u32)(pixel % WN), left, right, along);
    const X* from = x + pixel / WN / HN * H * W * C + c;
    float sum[V] = {};
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
        const float weight = (corner / 2 ? down : 1.0f - down) * (corner % 2 ? along : 1.0f - along);
        if (weight == 0.0f) continue;
        float value[V];
        load<V>(from + ((u64)(corner / 2 ? bottom : top) * W + (corner % 2 ? right : left)) * C, value);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += weight * value[i];
    }
    store<V>(y + at * V, sum);
}

// The new points that may depend on an old one.
template <bool LINEAR, u32 NEW, u32 OLD> DEVICE void readers(u32 old, u32& first, u32& last) {
    const double ratio = (double)NEW / (double)OLD;
    const double low = floor(((double)old - 1.0) * ratio) - 2.0, high = ceil(((double)old + 2.0) * ratio) + 2.0;
    first = old == 0 || low < 0.0 ? 0 : (u32)low;
    last = old == OLD - 1 || high > (double)(NEW - 1) ? NEW - 1 : (u32)high;
    if (first > NEW - 1) first = NEW - 1;
}

// The weight of an old point in a new one.
template <bool LINEAR, u32 NEW, u32 OLD> DEVICE float share(u32 to, u32 old) {
    u32 first, second;
    float weight;
    neighbors<LINEAR, NEW, OLD>(to, first, second, weight);
    return (first == old ? 1.0f - weight : 0.0f) + (second == old && second != first ? weight : 0.0f);
}

template <class X, class Y, int V, bool LINEAR, u32 H, u32 W, u32 C, u32 HN, u32 WN, u64 COUNT> DEVICE void resample_backward(const X* dy, Y* dx) {
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    if (at >= COUNT) return;
    const u32 c = (u32)(at % (C / V)) * V;
    const u64 pixel = at / (C / V);
    const u32 i = (u32)(pixel / W % H), j = (u32)(pixel % W);
    u32 top, bottom, left, right;
    readers<LINEAR, HN, H>(i, top, bottom);
    readers<LINEAR, WN, W>(j, left, right);
    const X* from = dy + pixel / W / H * HN * WN * C + c;
    float sum[V] = {};
    for (u32 row = top; row <= bottom; ++row) {
        const float down = share<LINEAR, HN, H>(row, i);
        if (down == 0.0f) continue;
        for (u32 column = left; column <= right; ++column) {
            const float weight = down * share<LINEAR, WN, W>(column, j);
            if (weight == 0.0f) continue;
            float value[V];
            load<V>(from + ((u64)row * WN + column) * C, value);
#pragma unroll
            for (int k = 0; k < V; ++k) sum[k] += weight * value[k];
        }
    }
    store<V>(dx + at * V, sum);
}
