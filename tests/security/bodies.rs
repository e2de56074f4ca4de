//! Requests that cost their sender little and the service much.

use std::iter::repeat_n;

use serde_json::json;

use crate::attack::Attack;
use crate::expectation::Finding;
use crate::host::growth;
use crate::scene::Scene;

const MIB: u64 = 1024 * 1024;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("replacing_each_letter_by_a_megabyte", replacing).everywhere().alone(),
    Attack::driven("sending_a_long_list_of_nothing_in_a_description_of_a_run", listing_nothing)
        .everywhere()
        .alone(),
    Attack::driven("reading_a_file_of_empty_lines_as_lines", reading_lines).everywhere().alone(),
];

/// Tells by how much the service grew while `attack` ran; it must stay below `most_bytes`.
fn bounded(scene: &Scene<'_>, most_bytes: u64, attack: impl FnOnce()) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs the memory of the service's process".into());
    };
    let grown = growth(host.service(), attack);
    if grown < most_bytes {
        Finding::Stopped
    } else {
        Finding::Through(format!("the service grew by {grown} bytes"))
    }
}

fn replacing(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("f", "a".repeat(1_000_000));
    let edit =
        json!({ "old_string": "a", "new_string": "b".repeat(1_000_000), "expected_replacements": 1_000_000 });
    let finding = bounded(scene, 64 * MIB, || {
        let body = json!({ "path": "f", "edits": [edit] });
        scene.client().post_json(format!("{tree}/replace"), &body).refused(413, "too_large");
    });
    assert_eq!(scene.client().get(format!("{tree}/raw/f")).bytes(200).len(), 1_000_000, "the control");
    finding
}

fn listing_nothing(scene: &Scene<'_>) -> Finding {
    for (field, element) in [("skills", "0"), ("limits", "[]"), ("args", "\"\"")] {
        let list = repeat_n(element, 1_500_000).collect::<Vec<_>>().join(",");
        let body = format!("{{\"command\":\"ls\",\"{field}\":[{list}]}}");
        let sent = u64::try_from(body.len()).unwrap();
        // The body itself is received into a buffer that doubles.
        let finding = bounded(scene, 3 * sent + 16 * MIB, || {
            let reply = scene.client().post(format!("{}/exec", scene.workspace()), body);
            assert!(matches!(reply.status, 400 | 413 | 501), "{field}: {}", reply.status);
        });
        if finding != Finding::Stopped {
            return finding;
        }
    }
    Finding::Stopped
}

fn reading_lines(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("f", "\n".repeat(1_500_000));
    let finding = bounded(scene, 32 * MIB, || {
        scene.client().get(format!("{tree}/content?path=f&start=1")).refused(413, "too_large");
    });
    let page = scene.client().get(format!("{tree}/content?path=f&start=1499001&end=2000000")).ok();
    assert_eq!(page["data"].as_array().unwrap().len(), 1000, "the control");
    finding
}
