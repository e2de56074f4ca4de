//! The vendors' packages, unmodified, each in a version of every generation.
//!
//! `FILESECBOX_COMPAT_CLIENTS` names a directory with a directory for each package and version, such as `anthropic-2.12.0`, that
//! `pip install --target` made (`.ci/run` does). Without it, the tests are left out; `FILESECBOX_REQUIRE=compat-clients` turns
//! that into a failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::doors::{ON, TOKENS};
use crate::support::{Service, granted};

/// Has a package do everything at the door of its vendor, for all users of an agent and for one. Returns the digests of what it
/// downloaded.
fn drive(package: &str, script: &str) -> BTreeSet<String> {
    let clients = std::env::var("FILESECBOX_COMPAT_CLIENTS").unwrap_or_default();
    let place = Path::new(&clients).join(package);
    if !granted("compat-clients", !clients.is_empty()) {
        return BTreeSet::new();
    }
    assert!(place.is_dir(), "FILESECBOX_COMPAT_CLIENTS has no {package}");
    let service = Service::configured(&format!("{ON}{}", TOKENS.concat()));
    let output = Command::new("python3")
        .args(["-W", "error::RuntimeWarning", script])
        .arg(format!("http://{}", service.client.address))
        .env("PYTHONPATH", place)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (told, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.trim_end().ends_with("done"), "{package}: {told}\n{warned}");
    told.lines().filter_map(|line| line.strip_prefix("digest ")).map(str::to_owned).collect()
}

#[test]
fn anthropic_of_every_generation_does_everything() {
    let mut digests = BTreeSet::new();
    for version in ["0.71.0", "0.125.0", "1.17.0", "2.12.0"] {
        digests.append(&mut drive(&format!("anthropic-{version}"), "anthropic_client.py"));
    }
    assert!(digests.len() <= 1, "one version became several archives: {digests:?}");
}

#[test]
fn openai_of_every_generation_does_everything() {
    for version in ["2.54.0", "3.54.0"] {
        drop(drive(&format!("openai-{version}"), "openai_client.py"));
    }
}
