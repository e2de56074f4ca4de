//! Reading and changing text by lines, by whole and by search.

use serde_json::{Value, json};

use crate::support::{Service, encoded, workspace};

/// A file as `content` shows some of its lines.
fn lines(service: &Service, path: &str, range: &str) -> Value {
    service.client.get(format!("{}/content?path={}{range}", workspace("u", "a"), encoded(path))).ok()
}

#[test]
fn content_without_a_range_is_the_text_and_with_one_the_lines() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.write(&tree, "文.txt", "一\n二\r\n三\r四");
    let whole = lines(&service, "文.txt", "");
    assert_eq!(whole["data"], "一\n二\r\n三\r四");
    assert_eq!(whole["total_lines"], 4);
    assert_eq!(whole["next"], Value::Null);
    assert_eq!(whole["encoding"], "utf-8");
    for (range, expected, next) in [
        ("&start=2&end=3", json!(["二", "三"]), json!(4)),
        ("&start=3", json!(["三", "四"]), Value::Null),
        ("&end=2", json!(["一", "二"]), json!(3)),
        ("&start=4&end=900", json!(["四"]), Value::Null),
        ("&start=5&end=9", json!([]), Value::Null),
        ("&start=3&end=2", json!([]), Value::Null),
        ("&start=1&end=18446744073709551615", json!(["一", "二", "三", "四"]), Value::Null),
        ("&start=18446744073709551615", json!([]), Value::Null),
    ] {
        let answer = lines(&service, "文.txt", range);
        assert_eq!((&answer["data"], &answer["next"]), (&expected, &next), "{range}");
        assert_eq!(answer["total_lines"], 4, "{range}");
    }
    service.client.write(&tree, "empty", "");
    assert_eq!(lines(&service, "empty", "")["total_lines"], 0);
    assert_eq!(lines(&service, "empty", "&start=1")["data"], json!([]));
}

#[test]
fn content_of_what_is_no_text_points_at_raw() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.put(format!("{tree}/raw/b?parents=true"), b"\xff\xfe\n\xff\n").bytes(201);
    for range in ["", "&start=1&end=2"] {
        let refused = service.client.get(format!("{tree}/content?path=b{range}")).refused(409, "not_text");
        assert!(refused["data"].as_str().unwrap().contains("raw"), "{refused}");
    }
    service.client.put(format!("{tree}/edit?path=b&start=1&end=1"), "x").refused(409, "not_text");
    service.client.get(format!("{tree}/content?path=none")).refused(404, "not_found");
}

#[test]
fn an_edit_without_a_range_replaces_the_file_byte_for_byte_and_makes_parents() {
    let service = Service::start();
    let tree = workspace("张三", "代理");
    let answer = service.client.write(&tree, "新/目录/文件.txt", "a\r\nb");
    assert_eq!(answer["data"], "File updated successfully.");
    assert_eq!((&answer["created"], &answer["size"]), (&json!(true), &json!(4)));
    assert_eq!(service.client.text(&tree, "新/目录/文件.txt"), "a\r\nb");
    // The same file, as agents name it from inside.
    let again = service.client.write(&tree, "/workspace/新/目录/文件.txt", "");
    assert_eq!((&again["created"], &again["path"]), (&json!(false), &json!("新/目录/文件.txt")));
    assert_eq!(service.client.text(&tree, "新/目录/文件.txt"), "");
}

#[test]
fn an_edit_of_lines_keeps_everything_it_does_not_name() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let max = u64::MAX.to_string();
    let all_to_max = format!("start=1&end={max}");
    for (name, before, range, body, after) in [
        ("replaces inclusively", "1\n2\n3\n", "start=2&end=2", "X", "1\nX\n3\n"),
        ("replaces several by one", "1\n2\n3\n", "start=1&end=2", "X\n", "X\n3\n"),
        ("replaces one by several", "1\n2\n3\n", "start=2&end=2", "X\nY\nZ", "1\nX\nY\nZ\n3\n"),
        ("inserts before start", "1\n2\n", "start=2&end=1", "X", "1\nX\n2\n"),
        ("inserts at the top", "1\n2\n", "start=1&end=0", "X", "X\n1\n2\n"),
        ("an empty body deletes", "1\n2\n3\n", "start=2&end=2", "", "1\n3\n"),
        ("deletes everything", "1\n2\n", "start=1&end=2", "", ""),
        ("one newline is one blank line", "1\n2\n3\n", "start=2&end=2", "\n", "1\n\n3\n"),
        ("trailing blank lines stay", "1\n2\n", "start=1&end=1", "a\n\n", "a\n\n2\n"),
        ("a leading blank line stays", "1\n2\n", "start=1&end=1", "\na", "\na\n2\n"),
        ("only start: to the end", "1\n2\n3\n", "start=2", "X", "1\nX\n"),
        ("only end: from the top", "1\n2\n3\n", "end=2", "X", "X\n3\n"),
        ("the line after the last appends", "1\n2\n", "start=3", "X", "1\n2\nX\n"),
        ("appends in the inserting form", "1\n2\n", "start=3&end=2", "X", "1\n2\nX\n"),
        ("end is clamped", "1\n2\n", "start=2&end=99", "X", "1\nX\n"),
        ("end is clamped however large", "1\n2\n", all_to_max.as_str(), "X", "X\n"),
        ("CRLF stays", "1\r\n2\r\n3\r\n", "start=2&end=2", "X\nY", "1\r\nX\r\nY\r\n3\r\n"),
        ("a missing final newline stays missing", "1\n2", "start=1&end=1", "X", "X\n2"),
        ("and at the end too", "1\n2", "start=2&end=2", "X", "1\nX"),
        ("Chinese", "一\n二\n", "start=1&end=1", "壹", "壹\n二\n"),
    ] {
        service.client.write(&tree, "f", before);
        service.client.put(format!("{tree}/edit?path=f&{range}"), body).ok();
        assert_eq!(service.client.text(&tree, "f"), after, "{name}");
    }
    for (before, range) in [
        ("1\n2\n3\n", "start=0&end=1".to_owned()),
        ("1\n2\n3\n", "start=5".to_owned()),
        ("1\n2\n3\n", "start=3&end=1".to_owned()),
        ("1\n2\n3\n", "start=-1&end=1".to_owned()),
        ("1\n2\n3\n", format!("start={max}")),
        ("1\n2\n3\n", format!("start={max}&end={max}")),
        ("1\n2\n3\n", "start=99999999999999999999".to_owned()),
    ] {
        service.client.write(&tree, "f", before);
        service.client.put(format!("{tree}/edit?path=f&{range}"), "X").refused(400, "invalid");
        assert_eq!(service.client.text(&tree, "f"), before, "{range}");
    }
    // A file that is not there has no lines.
    service.client.put(format!("{tree}/edit?path=made&start=1"), "X").ok();
    assert_eq!(lines(&service, "made", "")["data"], "X\n");
    service.client.put(format!("{tree}/edit?path=not&start=2"), "X").refused(400, "invalid");
    service.client.get(format!("{tree}/content?path=not")).refused(404, "not_found");
}

#[test]
fn an_edit_keeps_the_mode() {
    let service = Service::start();
    let tree = workspace("u", "a");
    service.client.put(format!("{tree}/raw/run.sh?mode=0755&parents=true"), "echo 1\n").bytes(201);
    service.client.put(format!("{tree}/edit?path=run.sh&start=1&end=1"), "echo 2").ok();
    service.client.write(&tree, "run.sh", "echo 3\n");
    let edits = json!({"path": "run.sh", "edits": [{"old_string": "3", "new_string": "4"}]});
    service.client.post_json(format!("{tree}/replace"), &edits).ok();
    let stat = service.client.get(format!("{tree}/stat?path=run.sh")).ok();
    assert_eq!(stat["data"]["mode"], "0755");
    assert_eq!(service.client.text(&tree, "run.sh"), "echo 4\n");
}

#[test]
fn replacements_are_made_all_or_none() {
    let service = Service::start();
    let tree = workspace("u", "a");
    let replace = |edits: Value| {
        service.client.post_json(format!("{tree}/replace"), &json!({"path": "f", "edits": edits}))
    };
    service.client.write(&tree, "f", "甲 乙 乙\r\n丙\r\n");
    replace(json!([
        {"old_string": "乙", "new_string": "二", "expected_replacements": 2},
        {"old_string": "丙\r\n", "new_string": ""}
    ]))
    .ok();
    assert_eq!(service.client.text(&tree, "f"), "甲 二 二\r\n");

    let refused = replace(json!([
        {"old_string": "甲", "new_string": "一"},
        {"old_string": "二", "new_string": "2"}
    ]))
    .refused(409, "edit_mismatch");
    assert_eq!(
        (&refused["edit"], &refused["found"], &refused["expected"]),
        (&json!(1), &json!(2), &json!(1))
    );
    assert!(refused["data"].as_str().unwrap().contains("include more"), "{refused}");
    let refused =
        replace(json!([{"old_string": "甲 二 三", "new_string": ""}])).refused(409, "edit_mismatch");
    assert_eq!((&refused["found"], &refused["nearest_line"]), (&json!(0), &json!(1)), "{refused}");
    for wrong in [
        json!([]),
        json!([{"old_string": "", "new_string": "x"}]),
        json!([{"old_string": "甲", "new_string": "x", "expected_replacements": 0}]),
        json!([{"old_string": "甲"}]),
        json!([{"old_string": "甲", "new_string": "x", "extra": 1}]),
        json!({}),
    ] {
        replace(wrong).refused(400, "invalid");
    }
    assert_eq!(service.client.text(&tree, "f"), "甲 二 二\r\n");
    let missing = json!({"path": "none", "edits": [{"old_string": "a", "new_string": "b"}]});
    service.client.post_json(format!("{tree}/replace"), &missing).refused(404, "not_found");
}
