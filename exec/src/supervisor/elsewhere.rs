//! [`is_elsewhere`]: the look that decides most calls that open a file.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// The bytes that tell whether a path may be one in `/proc` or `/dev`.
const BEGINNING_BYTES: usize = 5;

/// Tells whether the path at `address` certainly begins neither with `/proc` nor with `/dev/`.
///
/// One system call, where [`Target`](super::target::Target) makes several: most files that a program opens are of this kind. The caller can change the
/// path afterwards, and the kernel judges what it is then, as if the call had not waited.
pub(super) fn is_elsewhere(thread: i32, address: u64) -> bool {
    let Ok(base) = usize::try_from(address) else { return false };
    let mut beginning = [0; BEGINNING_BYTES];
    let there = [RemoteIoVec { base, len: BEGINNING_BYTES }];
    let read = process_vm_readv(Pid::from_raw(thread), &mut [IoSliceMut::new(&mut beginning)], &there);
    read == Ok(BEGINNING_BYTES) && !matches!(&beginning, b"/proc" | b"/dev/" | [b'/', b'/' | b'.', ..])
}
