//! Paths of the host that every run may read: libraries, shared data and the harmless part of `/etc`.
//!
//! Landlock has no "all but": a path that is not listed is out of reach, so the list is generous where programs expect
//! an answer (they are built for "no such file", rarely for "permission denied") and silent about everything else.
//! `/etc/shadow`, `/etc/ssl/private`, package managers' configuration (it may hold passwords) and home directories
//! are on no list.
//!
//! `/proc` is listed file by file. A rule on `/proc` itself would open every process's directory, and a rule on
//! `/proc/self` means the directory of the process that adds the rule. So a run sees the machine's facts (`cpuinfo`,
//! `meminfo`) but no process, not even itself, except through the links in `/proc/self/fd`, which Landlock treats as
//! the files they are.

use std::path::PathBuf;

/// Directories read with all that is beneath.
pub(crate) const TREES: &[&str] = &[
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/include",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/include",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/share",
    "/usr/share",
    "/etc/ImageMagick-6",
    "/etc/ImageMagick-7",
    "/etc/alternatives",
    "/etc/bash_completion.d",
    "/etc/ca-certificates",
    "/etc/chromium",
    "/etc/chromium.d",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/ld.so.conf.d",
    "/etc/libreoffice",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/profile.d",
    "/etc/skel",
    "/etc/ssl/certs",
    "/etc/terminfo",
    "/proc/sys/crypto",
    "/proc/sys/kernel/random",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
    "/var/spool/libreoffice",
];

/// Directories whose names may be listed and whose files may not be read: programs off the whitelist are here, and a
/// loader runs every file it can read.
pub(crate) const LISTABLE: &[&str] =
    &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Files read.
pub(crate) const FILES: &[&str] = &[
    "/etc/alpine-release",
    "/etc/bash.bashrc",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/matplotlibrc",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/papersize",
    "/etc/passwd",
    "/etc/pki/tls/openssl.cnf",
    "/etc/profile",
    "/etc/protocols",
    "/etc/redhat-release",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/etc/xattr.conf",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/pipe-max-size",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/version",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/proc/vmstat",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];

/// Devices read and written.
pub(crate) const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/tty"];

/// Configuration directories of the Python versions installed, such as `/etc/python3.11`.
pub(crate) fn python_trees() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    let names = entries.filter_map(Result::ok).map(|entry| entry.path());
    names
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python")))
        .collect()
}

/// The paths of [`TREES`] and [`FILES`] in `/etc`.
pub(crate) fn etc() -> impl Iterator<Item = PathBuf> {
    TREES.iter().chain(FILES).filter(|path| path.starts_with("/etc/")).map(PathBuf::from)
}

/// Directories of the host that stand in the root of mounted runs as they are.
pub(crate) const BOUND: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
    // Extensions of the system, which LibreOffice looks for by a link in its own directory.
    "/var/spool/libreoffice",
];

/// Tells whether `path` means something of the minimal root of mounted runs, and not of the host.
pub(crate) fn is_of_the_root(path: &std::path::Path) -> bool {
    ["/etc", "/dev", "/proc"].iter().any(|made| path.starts_with(made))
}
