//! File modes as the runners' frames have them: Go's `os.FileMode`, not `st_mode`.
//!
//! # References
//! `io/fs.FileMode` of Go's standard library.

use crate::FileKind;

const DIRECTORY: u32 = 1 << 31;
const SYMLINK: u32 = 1 << 27;
const DEVICE: u32 = 1 << 26;
const PIPE: u32 = 1 << 25;
const SOCKET: u32 = 1 << 24;
const SETUID: u32 = 1 << 23;
const SETGID: u32 = 1 << 22;
const STICKY: u32 = 1 << 20;

/// The number for permission bits and a kind.
#[must_use]
pub fn to_wire(kind: FileKind, permissions: u32) -> u32 {
    let kind = match kind {
        FileKind::File => 0,
        FileKind::Directory => DIRECTORY,
        FileKind::Symlink => SYMLINK,
        FileKind::Other => DEVICE,
    };
    let special = [(0o4000, SETUID), (0o2000, SETGID), (0o1000, STICKY)];
    let special = special.iter().filter(|(bit, _)| permissions & bit != 0).map(|(_, bit)| bit).sum::<u32>();
    kind | special | permissions & 0o777
}

/// The kind and the permission bits of a number.
#[must_use]
pub fn from_wire(mode: u32) -> (FileKind, u32) {
    let kind = match mode {
        _ if mode & DIRECTORY != 0 => FileKind::Directory,
        _ if mode & SYMLINK != 0 => FileKind::Symlink,
        _ if mode & (DEVICE | PIPE | SOCKET) != 0 => FileKind::Other,
        _ => FileKind::File,
    };
    let special = [(0o4000, SETUID), (0o2000, SETGID), (0o1000, STICKY)];
    let special = special.iter().filter(|(_, bit)| mode & bit != 0).map(|(bit, _)| bit).sum::<u32>();
    (kind, special | mode & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_real_runners() {
        assert_eq!(to_wire(FileKind::Directory, 0o755), 2_147_484_141);
        assert_eq!(to_wire(FileKind::File, 0o644), 420);
        assert_eq!(from_wire(2_147_484_141), (FileKind::Directory, 0o755));
        assert_eq!(from_wire(1 << 27 | 0o777), (FileKind::Symlink, 0o777));
        assert_eq!(from_wire(to_wire(FileKind::File, 0o4755)), (FileKind::File, 0o4755));
        assert_eq!(from_wire(1 << 25 | 0o600), (FileKind::Other, 0o600));
    }
}
