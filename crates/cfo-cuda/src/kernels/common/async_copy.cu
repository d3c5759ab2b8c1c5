// Asynchronous copies from global to shared memory (cp.async). Each thread commits its copies as one group, and waits
// until at most LEFT of its groups are unfinished.

DEVICE u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// 16 bytes.
DEVICE void copy_async(u32 to, const void* from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }
DEVICE void copy_async(void* to, const void* from) { copy_async(shared_address(to), from); }

// 16 bytes, or zeros if `there` is false.
DEVICE void copy_async_or_zero(u32 to, const void* from, bool there) {
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// V numbers, or zeros. The compiler may move other memory accesses across it; readers wait at a barrier.
template <int V> DEVICE void copy_async_numbers(float* to, const float* from, bool there) {
    const u32 at = (u32)__cvta_generic_to_shared(to);
    const int bytes = there ? 4 * V : 0;
    if (V == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from), "r"(bytes), "n"(4 * (V == 4 ? 1 : V)));
}

DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
