//! The `/etc` of mounted runs: copies of what programs look for, and files that say nothing of the host.
//!
//! What is so large that copying it would hold up the start is mounted: the links of a host with many packages, its
//! certificates. Each mount makes every run dearer, so that little is.

use std::fs::{self, DirEntry, File, FileType};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use super::mounting::{attach, close, make_dirs, tree_of};
use crate::walls::host_paths;

/// The users of every system, as passwd(5) has them.
pub(super) const USERS: &str = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
/// Largest file that is copied, in bytes; the certificates of all authorities have some 250 KB.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Entries that are copied at most, and levels below `/etc`.
const ENTRIES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 8;
/// A directory with more entries than this is mounted, and so is a file of more bytes.
const COPIED_ENTRIES_MAX: usize = 100;
const COPIED_BYTES_MAX: u64 = 512 * 1024;

/// Files that say nothing of the host.
const SYNTHETIC: [(&str, &str); 4] = [
    ("etc/passwd", USERS),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    ("etc/hostname", "sandbox\n"),
];

/// Makes the `/etc` of `root` of what the host's has of the files that every run may read.
pub(super) fn copy(root: &Path) -> io::Result<()> {
    let mut left = ENTRIES_MAX;
    let named = host_paths::etc().chain(host_paths::python_trees());
    for path in named {
        let Ok(relative) = path.strip_prefix("/") else { continue };
        let target = root.join(relative);
        if let Some(parent) = target.parent() {
            make_dirs(parent)?;
        }
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        copy_entry(&path, &target, meta.file_type(), DEPTH_MAX, &mut left)?;
    }
    for (name, text) in SYNTHETIC {
        fs::write(root.join(name), text)?;
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Copies a file, link or directory, as `kind` says; what cannot be read or is too large is left out.
fn copy_entry(
    source: &Path,
    target: &Path,
    kind: FileType,
    depth: usize,
    left: &mut usize,
) -> io::Result<()> {
    let Some(rest) = left.checked_sub(1) else { return Ok(()) };
    *left = rest;
    if kind.is_symlink() {
        let Ok(destination) = fs::read_link(source) else { return Ok(()) };
        return if leads_away(source, &destination) {
            copy_file(source, target)
        } else {
            symlink(destination, target)
        };
    }
    if kind.is_file() {
        return copy_file(source, target);
    }
    let (true, Some(depth)) = (kind.is_dir(), depth.checked_sub(1)) else { return Ok(()) };
    make_dirs(target)?;
    let Ok(entries) = fs::read_dir(source) else { return Ok(()) };
    let entries: Vec<DirEntry> = entries.filter_map(Result::ok).take(*left).collect();
    if entries.len() > COPIED_ENTRIES_MAX && entries.iter().all(stands_alone) && stand(source, target).is_ok()
    {
        return Ok(());
    }
    for entry in entries {
        let Ok(kind) = entry.file_type() else { continue };
        copy_entry(&entry.path(), &target.join(entry.file_name()), kind, depth, left)?;
    }
    Ok(())
}

/// Tells whether the link at `source` leads to a place that is not in the root, such as that of `/etc/resolv.conf`: it is
/// copied as what it leads to.
fn leads_away(source: &Path, destination: &Path) -> bool {
    let within = source.parent().map(|parent| parent.join(destination));
    within.is_some_and(|path| !(path.starts_with("/etc") || path.starts_with("/usr")))
}

/// Tells whether an entry means the same where its directory is mounted.
fn stands_alone(entry: &DirEntry) -> bool {
    let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
    let path = entry.path();
    !is_link || fs::read_link(&path).is_ok_and(|destination| !leads_away(&path, &destination))
}

/// Copies the file to which `source` leads, if it is one.
///
/// It keeps its time: Python compiles a module anew whose source is not as old as its byte code says (PEP 3147), and
/// Debian's `sitecustomize`, which every start of Python imports, is in `/etc`.
fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    // Without waiting for the other end of what is no file.
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(source);
    let Ok((file, meta)) = opened.and_then(|file| file.metadata().map(|meta| (file, meta))) else {
        return Ok(());
    };
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
        return Ok(());
    }
    if meta.len() > COPIED_BYTES_MAX {
        File::create(target)?;
        if stand(source, target).is_ok() {
            return Ok(());
        }
    }
    let mut content = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
    if file.take(FILE_BYTES_MAX).read_to_end(&mut content).is_err() {
        return Ok(());
    }
    let mut made = File::create(target)?;
    made.write_all(&content)?;
    // The process's mask has taken bits away (umask(2)).
    made.set_permissions(fs::Permissions::from_mode(0o644))?;
    made.set_modified(meta.modified()?)
}

/// Lets the host's `source` stand at `target`, read-only.
fn stand(source: &Path, target: &Path) -> io::Result<()> {
    let tree = tree_of(source)?;
    close(&tree)?;
    attach(&tree, target)
}
