//! A proxy on a free port, servers behind it, and a resolver that says what it is told.

mod proxy;
mod resolver;
mod server;

pub(crate) use proxy::{PATIENCE, Proxy, credentials, exchange, log_of, receive, status_of};
pub(crate) use resolver::Script;
pub(crate) use server::{Server, echo, http};

/// Tells whether a program is installed; a test without it is skipped loudly, or fails where `FILESECBOX_REQUIRE`
/// names it.
pub(crate) fn have(program: &str) -> bool {
    let version = std::process::Command::new(program).arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
    assert!(
        is_there || !required.split(',').any(|name| name.trim() == program),
        "`{program}` is required by FILESECBOX_REQUIRE and absent"
    );
    if !is_there {
        eprintln!("SKIPPED: `{program}` is not installed");
    }
    is_there
}
