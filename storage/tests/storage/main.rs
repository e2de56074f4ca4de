//! What storage promises: the laws of the merged view, of publication, of runs and snapshots, and of a disk that is short.
//!
//! Laws that need something of the machine (root, mounts, a file system with project quotas) say so when it is not there;
//! `FILESECBOX_REQUIRE` turns that into a failure.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test fails by panicking, says what it does, and looks at the disk past the code it checks"
)]

mod absorbing;
mod archives;
mod attacks;
mod contract;
mod copies;
mod copying;
mod deploying;
mod fixture;
mod flight;
mod held;
mod idle_copies;
mod life;
mod live;
mod oracle;
mod packages;
mod points;
mod policies;
mod projects;
mod publish;
mod quota;
mod recovery;
mod runs;
mod sandboxes;
mod snapshots;
mod standing;
mod status;
mod tools;
mod user_quota;
mod versions;
mod watch;
mod whiteouts;
