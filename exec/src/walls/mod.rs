//! The walls around a run: which files it may open, which programs it may run, which system calls it may make.

pub(crate) mod binary;
pub(crate) mod host_paths;
pub(crate) mod landlock;
pub(crate) mod programs;
pub(crate) mod seccomp;
