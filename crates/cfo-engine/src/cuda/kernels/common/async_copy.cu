// Copies of 16 bytes from global to shared memory that run beside everything else.

DEVICE void copy_in(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
DEVICE void copies_begin() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
