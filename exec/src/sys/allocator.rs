//! When the C library's allocator gives memory back to the kernel.

/// Size from which an allocation has pages of its own, which the kernel gets back when it is freed, in bytes.
#[cfg(target_env = "gnu")]
const OWN_PAGES_BYTES: i32 = 1024 * 1024;
/// Free memory that each arena keeps at its end, in bytes: twice as much, as the C library itself relates them.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 2 * OWN_PAGES_BYTES;

/// Has large allocations of this process go back to the kernel when they are freed.
///
/// Otherwise the C library raises both figures to 32 and 64 MiB with the sizes that it sees freed (mallopt(3),
/// `M_MMAP_THRESHOLD`), and each thread's arena keeps what one large request took. Other C libraries are left alone.
pub fn return_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: integers only; `mallopt` takes the allocator's own lock, and both parameters hold for later calls alone.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}
