//! Attacks on the record of what was done: filling the audit log until what is in it goes.

use serde_json::{Value, json};

use crate::attack::Attack;
use crate::expectation::Finding;
use crate::scene::Scene;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("washing_the_audit_log_away_with_failing_patches", washing_with_patches)
        .everywhere()
        .waiting(),
    Attack::driven("taking_the_id_of_anothers_request_in_the_audit_log", taking_an_id).everywhere(),
];

/// The bytes that failing requests of one caller may add to the log: the part of `audit.account_bytes` of the stage's
/// configuration that is for them, and one more record.
const MOST_BYTES: usize = 8 * 1024 * 1024 / 32 + 16 * 1024;
/// Requests that each wrote some 33 KiB when paths were recorded whole.
const REQUESTS: usize = 200;

/// A patch of eight files with long names, none of which is there.
fn patch() -> Value {
    let file = |number: usize| {
        let name = format!("{number}/{}", vec!["n".repeat(200); 19].join("/"));
        format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-x\n+y\n")
    };
    json!({ "patch": (0..8).map(file).collect::<String>() })
}

fn washing_with_patches(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs a look at the audit log".into());
    };
    let tree = scene.workspace();
    scene.write("control", "x");
    let body = patch();
    for _ in 0..REQUESTS {
        scene.client().post_json(format!("{tree}/patch"), &body).refused(404, "not_found");
    }
    // Without a bound it would be 6 MiB.
    let records = host.audit_records();
    let own = records.iter().filter(|record| record["user"] == scene.user.as_str());
    let grown: usize = own.map(|record| record.to_string().len()).sum();
    if grown > MOST_BYTES {
        return Finding::Through(format!("{REQUESTS} failing requests wrote {grown} bytes of audit log"));
    }
    let recorded = records.iter().any(|record| {
        record["user"] == scene.user.as_str() && record["paths"][0] == "control" && record["outcome"] == "ok"
    });
    assert!(recorded, "the control: the change of before is recorded");
    assert!(grown > 100_000, "the control: failing requests are recorded until the part is spent");
    Finding::Stopped
}

fn taking_an_id(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs a look at the audit log".into());
    };
    let victim = scene.control();
    let made = victim.client().put(format!("{}/raw/f?parents=true", victim.workspace()), "x");
    let id = made.header("x-request-id").expect("an id").to_owned();
    let target = format!("{}/raw/f?parents=true", scene.workspace());
    let forged = scene.client().request("PUT", target).header("x-request-id", &id).body("x").send();
    let records = host.audit_records();
    let with = |id: &str| records.iter().filter(|record| record["request"] == id).count();
    if with(&id) != 1 || forged.header("x-request-id") == Some(&id) {
        return Finding::Through("two requests have the same id".into());
    }
    let own = forged.header("x-request-id").expect("an id");
    let beside =
        records.iter().any(|record| record["request"] == own && record["caller_request"] == id.as_str());
    assert!(beside, "the control: the sender's id is recorded beside the service's own");
    Finding::Stopped
}
