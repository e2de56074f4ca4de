//! The directories that a container begins with, as an archive that the engine unpacks in it.
//!
//! # References
//! `tar(5)` ("POSIX ustar Archives").

const BLOCK_BYTES: usize = 512;
/// Where the numbers of a header stand, as octal digits: position and length.
const MODE: (usize, usize) = (100, 8);
const UID: (usize, usize) = (108, 8);
const GID: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const TIME: (usize, usize) = (136, 12);
const CHECKSUM: (usize, usize) = (148, 8);
const KIND: usize = 156;
const MAGIC: (usize, &[u8]) = (257, b"ustar\x0000");

/// An archive of the directories `paths`, absolute and shorter than 99 bytes, which belong to `uid` alone.
pub(super) fn archive(paths: &[&str], uid: u32) -> Vec<u8> {
    let mut archive: Vec<u8> = paths.iter().flat_map(|path| header(path, uid)).collect();
    archive.extend([0; 2 * BLOCK_BYTES]);
    archive
}

fn header(path: &str, uid: u32) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    put(&mut header, 0, format!("{}/", path.trim_matches('/')).as_bytes());
    for (place, number) in [(MODE, 0o755), (UID, uid), (GID, uid), (SIZE, 0), (TIME, 0)] {
        put_number(&mut header, place, number);
    }
    put(&mut header, KIND, b"5");
    put(&mut header, MAGIC.0, MAGIC.1);
    // Of the header in which the checksum itself is spaces.
    put(&mut header, CHECKSUM.0, &[b' '; CHECKSUM.1]);
    let sum = header.iter().map(|byte| u32::from(*byte)).sum();
    put_number(&mut header, (CHECKSUM.0, CHECKSUM.1 - 1), sum);
    header
}

/// Octal digits with a NUL behind them.
fn put_number(header: &mut [u8; BLOCK_BYTES], (at, length): (usize, usize), number: u32) {
    put(header, at, format!("{number:0width$o}\0", width = length - 1).as_bytes());
}

fn put(header: &mut [u8; BLOCK_BYTES], at: usize, bytes: &[u8]) {
    for (to, from) in header.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test asks another program about a file of its own")]
    fn another_program_reads_the_archive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        std::fs::write(&path, archive(&["/workspace", "/home/sandbox"], 10_001)).unwrap();
        let told = std::process::Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let lines: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
        let facts: Vec<_> = lines.iter().map(|line| (line[0], line[1], *line.last().unwrap())).collect();
        assert_eq!(
            facts,
            [("drwxr-xr-x", "10001/10001", "workspace/"), ("drwxr-xr-x", "10001/10001", "home/sandbox/")]
        );
    }
}
