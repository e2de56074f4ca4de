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

/// Has the kernel take back the pages of this process that hold nothing: many users leave memory behind that is free, between pieces
/// that are not, and the C library gives back by itself only what is free at the end of an arena. Takes 0.1 to 2 ms, for which
/// allocations wait for it. Other C libraries are left alone.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: an integer only; `malloc_trim` takes the allocator's own locks (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Resident memory of this process, in MiB (proc_pid_statm(5)).
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() / (1024 * 1024)
    }

    #[test]
    fn what_is_free_between_pieces_goes_back() {
        // 128 MiB, of which one page in 64 stays.
        let all: Vec<Vec<u8>> = (0..32 * 1024).map(|_| vec![1; 4096]).collect();
        let kept: Vec<Vec<u8>> = all.into_iter().step_by(64).collect();
        let before = resident();
        return_free_memory();
        assert!(resident() + 64 < before, "{before} MiB before, {} after", resident());
        assert!(kept.iter().all(|piece| piece.iter().all(|byte| *byte == 1)));
    }
}
