//! Requests that cost their sender little and the service much.

use std::iter::repeat_n;

use serde_json::json;

use crate::support::{Service, memory_peak_bytes, reset_memory_peak, workspace};

const MIB: u64 = 1024 * 1024;

/// Bytes by which the service grows at most while `attack` runs.
fn growth(service: &Service, attack: impl FnOnce()) -> u64 {
    reset_memory_peak(service.pid());
    let before = memory_peak_bytes(service.pid());
    attack();
    memory_peak_bytes(service.pid()).saturating_sub(before)
}

#[test]
fn replacing_each_letter_by_a_megabyte() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.put(format!("{tree}/raw/f"), "a".repeat(1_000_000)).ok();
    let edit = json!({
        "old_string": "a", "new_string": "b".repeat(1_000_000), "expected_replacements": 1_000_000
    });
    let grown = growth(&service, || {
        let body = json!({ "path": "f", "edits": [edit] });
        service.client.post_json(format!("{tree}/replace"), &body).refused(413, "too_large");
    });
    assert!(grown < 64 * MIB, "{grown}");
    assert_eq!(service.client.get(format!("{tree}/raw/f")).bytes(200).len(), 1_000_000);
}

#[test]
fn a_long_list_of_nothing_in_a_description_of_a_run() {
    let service = Service::start();
    let elements = 4_000_000;
    for (field, element, status, code) in [
        ("skills", "0", 501, "unsupported"),
        ("limits", "[]", 501, "unsupported"),
        ("args", "\"\"", 400, "invalid"),
    ] {
        let list = repeat_n(element, elements).collect::<Vec<_>>().join(",");
        let body = format!("{{\"command\":\"ls\",\"{field}\":[{list}]}}");
        let sent = u64::try_from(body.len()).unwrap();
        let grown = growth(&service, || {
            service.client.post(format!("{}/exec", workspace("u", "a")), body).refused(status, code);
        });
        // The body itself is received into a buffer that doubles.
        assert!(grown < 3 * sent + 16 * MIB, "{field}: {grown} for {sent}");
    }
}

#[test]
fn reading_a_file_of_empty_lines_as_lines() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.put(format!("{tree}/raw/f"), "\n".repeat(8_000_000)).ok();
    let grown = growth(&service, || {
        service.client.get(format!("{tree}/content?path=f&start=1")).refused(413, "too_large");
    });
    assert!(grown < 32 * MIB, "{grown}");
    let page = service.client.get(format!("{tree}/content?path=f&start=7999001&end=9000000")).ok();
    assert_eq!(page["data"].as_array().unwrap().len(), 1000);
}
