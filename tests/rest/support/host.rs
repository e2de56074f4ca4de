//! The means of this host, and loud skips when it lacks something.

use std::process::{Command, Stdio};

use super::Client;

/// Tells whether a test has to be left out because `what` is missing; fails where `FILESECBOX_REQUIRE` names it.
pub(crate) fn granted(what: &str, is_there: bool) -> bool {
    if is_there {
        return true;
    }
    let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == what),
        "this host lacks `{what}`, which is required"
    );
    eprintln!("SKIPPED: this host lacks `{what}`");
    false
}

/// Tells whether commands run behind Landlock or more here.
pub(crate) fn landlocked(client: &Client) -> bool {
    let info = client.get("/v1/info").ok();
    let tier = info["data"]["host"]["enforcement"]["tier"].as_str().unwrap_or_default().to_owned();
    granted("landlock", tier == "landlock" || tier == "namespaces")
}

/// Tells whether the tests run as root.
pub(crate) fn is_root() -> bool {
    granted("root", rustix::process::geteuid().is_root())
}

/// Tells whether a program that serves as an oracle is installed.
pub(crate) fn have(program: &str) -> bool {
    let mut command = Command::new(program);
    let found = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    granted(program, found.status().is_ok())
}
