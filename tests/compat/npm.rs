//! The vendors' packages of npm, unmodified: `@anthropic-ai/sdk` and `openai`.
//!
//! `FILESECBOX_INSTALLERS` names the directory where npm has installed them beside the installers (`installers.rs`).

use std::path::Path;

use crate::clients::{recorded, run};
use crate::doors::{ON, TOKENS};
use crate::faults;
use crate::support::{Service, granted};

/// Each package with the name of its transcript and its vendor.
pub(crate) const PACKAGES: [(&str, &str, &str); 2] =
    [("@anthropic-ai/sdk", "anthropic-ai-sdk-1.12.0", "anthropic"), ("openai", "openai-7.57.0", "openai")];

/// The directory of the packages, and their Node.js.
pub(crate) fn place(package: &str) -> Option<(String, String)> {
    let place = std::env::var("FILESECBOX_INSTALLERS").unwrap_or_default();
    if !granted("installers", !place.is_empty()) {
        return None;
    }
    let modules = Path::new(&place).join("node_modules");
    assert!(modules.join(package).is_dir(), "FILESECBOX_INSTALLERS has no {package}");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    Some((text(&modules), text(&modules.join(".bin/node"))))
}

#[test]
fn a_package_of_npm_does_everything() {
    std::thread::scope(|scope| {
        for (package, transcript, vendor) in PACKAGES {
            scope.spawn(move || {
                let Some((modules, node)) = place(package) else { return };
                let service = Service::configured(&format!("{ON}{}", TOKENS.concat()));
                let script = format!("{vendor}_client.cjs");
                drop(recorded(transcript, &service, |url| {
                    run(&[&node, &script, url], &[("NODE_PATH", &modules)])
                }));
            });
        }
    });
}

#[test]
fn a_package_of_npm_sends_again_what_may_help_and_a_broken_connection_leaves_one_version() {
    std::thread::scope(|scope| {
        for (package, _, vendor) in PACKAGES {
            scope.spawn(move || {
                let Some((modules, node)) = place(package) else { return };
                faults::drive(&[&node, "faults_client.cjs"], vendor, &[("NODE_PATH", &modules)]);
            });
        }
    });
}
