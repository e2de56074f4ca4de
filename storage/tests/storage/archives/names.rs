//! Attacks through names and types.

use storage::archive::ArchiveError::*;

use super::builder::*;
use super::taking::take;
use crate::refused;

#[test]
fn traversal_is_refused_in_every_form() {
    for name in [
        "../x",
        "a/../../x",
        "a/..",
        "..",
        "/abs",
        "//x",
        "C:\\x",
        "C:x",
        "c:/x",
        "\\abs",
        "..\\x",
        "a\\..\\x",
        "a/b\\..\\..\\x",
        "\\\\host\\share",
    ] {
        refused!(zip([file("a/SKILL.md", b""), file(name, b"")]), Escape { .. });
        refused!(zip([dos("a/SKILL.md", b""), dos(name, b"")]), Escape { .. });
        refused!(zip([file(name, b"")]), Escape { .. });
        refused!(zip([file("a/SKILL.md", b""), directory(format!("{name}/"))]), Escape { .. });
    }
}

#[test]
fn traversal_smuggled_in_the_unicode_field_is_refused() {
    let mut entry = file("a/innocent", b"");
    entry.extra = unicode_path(b"a/innocent", "../../evil");
    refused!(zip([entry]), Escape { .. });
}

#[test]
fn traversal_in_gbk_and_behind_a_gbk_trail_byte_is_refused() {
    // 誠 is D5 5C, so that its second byte is no separator; the `..` after a true one is.
    refused!(zip([dos(b"a/\xD5\x5C/../../x", b"")]), Escape { .. });
    refused!(zip([dos(b"\xCA\xFD\xBE\xDD\\..\\..\\x", b"")]), Escape { .. });
}

#[test]
fn control_characters_and_empty_segments_are_refused() {
    for name in ["a/x\0.txt", "a/x\ny", "a/\x1B[2Jx", "a/\u{85}", "a//x", "a/./x", "a/.", ".", ""] {
        refused!(zip([file(name, b"")]), Path { .. });
    }
}

#[test]
fn messages_show_names_bounded_and_escaped() {
    let error = take(&zip([file(format!("a/\x1B[2J{}\n", "x".repeat(900)), b"")])).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}") && error.contains('…'), "{error}");
    assert!(error.len() < 300 && !error.contains('\u{1B}'), "{error}");
}

#[test]
fn long_names_are_measured_after_decoding() {
    let hundred = "\u{6570}".repeat(100);
    let (gbk, _, _) = encoding_rs::GBK.encode(&hundred);
    assert_eq!(gbk.len(), 200);
    refused!(zip([dos([b"a/", gbk.as_ref()].concat(), b"")]), Path { .. });
    let eighty_five = encoding_rs::GBK.encode(&hundred[..85 * 3]).0.into_owned();
    assert!(take(&zip([dos([b"a/".to_vec(), eighty_five].concat(), b"")])).is_ok());
    refused!(zip([file("a/".repeat(3) + &"x/".repeat(520), b"")]), PathTooLong { limit: 1024, .. });
    refused!(zip([file("x".repeat(60_000), b"")]), PathTooLong { .. });
}

#[test]
fn links_and_devices_are_refused_whatever_the_host() {
    for (kind, host) in [(0o120_000, 3), (0o120_000, 0), (0o120_000, 19)] {
        let mut entry = file("a/link", b"/etc/passwd");
        entry.attributes = (kind | 0o777) << 16;
        entry.host = host;
        refused!(zip([entry]), LinkLeaves { .. });
    }
    for kind in [0o020_000, 0o060_000, 0o140_000, 0o010_000, 0o150_000] {
        let mut entry = stored("a/device", b"");
        entry.attributes = (kind | 0o666) << 16;
        refused!(zip([entry]), Device { .. });
    }
}

#[test]
fn a_link_written_first_cannot_redirect_a_file_written_after_it() {
    let mut link = stored("a/out", b"/tmp");
    link.attributes = 0o120_777 << 16;
    refused!(zip([link, file("a/out/evil", b"x")]), FileAndDirectory { .. });
}

#[test]
fn a_pipe_with_data_is_a_file_as_info_zip_marks_its_standard_input() {
    let mut entry = file("a/stdin", b"data");
    entry.attributes = 0o010_600 << 16;
    let taken = take(&zip([entry])).unwrap();
    assert_eq!((taken.text("a/stdin"), taken.mode("a/stdin")), ("data", 0o644));
}

#[test]
fn only_execute_bits_of_a_unix_host_survive() {
    for (mode, host, expected) in [
        (0o100_755, 3, 0o755),
        (0o104_755, 3, 0o755),
        (0o107_777, 3, 0o755),
        (0o100_666, 3, 0o644),
        (0o100_000, 3, 0o644),
        (0o100_010, 19, 0o755),
        (0o100_755, 0, 0o644),
    ] {
        let mut entry = file("a/run", b"");
        entry.attributes = mode << 16;
        entry.host = host;
        assert_eq!(take(&zip([entry])).unwrap().mode("a/run"), expected, "{mode:o} {host}");
    }
}

#[test]
fn a_directory_with_data_is_refused() {
    let mut entry = stored("a/dir/", b"data");
    entry.attributes = 0o040_755 << 16;
    refused!(zip([entry.clone()]), DirectoryWithData { .. });
    entry.name = b"a/dir".to_vec();
    refused!(zip([entry]), DirectoryWithData { .. });
}

#[test]
fn a_directory_deflated_to_two_bytes_is_a_directory() {
    let taken = take(&zip([file("a/empty/", b""), file("a/x", b"")])).unwrap();
    assert_eq!(taken.paths(), ["a", "a/empty", "a/x"]);
}

#[test]
fn a_name_twice_is_refused_also_when_only_decoding_makes_it_so() {
    refused!(zip([file("a/x", b"1"), file("a/x", b"2")]), Duplicate { .. });
    refused!(zip([dos("a/b/x", b"1"), dos("a\\b\\x", b"2")]), Duplicate { .. });
    let mut renamed = file("a/y", b"2");
    renamed.extra = unicode_path(b"a/y", "a/x");
    refused!(zip([file("a/x", b"1"), renamed]), Duplicate { .. });
    let marked = Entry { flags: 1 << 11, ..dos("a/数据", b"1") };
    let unmarked = dos(b"a/\xCA\xFD\xBE\xDD", b"2");
    refused!(zip([marked, unmarked]), Duplicate { .. });
}

#[test]
fn a_path_that_is_file_and_directory_is_refused_in_either_order() {
    refused!(zip([file("a/x", b""), file("a/x/y", b"")]), FileAndDirectory { .. });
    refused!(zip([file("a/x/y", b""), file("a/x", b"")]), FileAndDirectory { .. });
    refused!(zip([file("a/x", b""), directory("a/x/")]), FileAndDirectory { .. });
}

#[test]
fn a_directory_named_twice_and_names_that_differ_in_case_are_fine() {
    let taken = take(&zip([directory("a/"), directory("a/"), file("a/X", b"1"), file("a/x", b"2")])).unwrap();
    assert_eq!((taken.text("a/X"), taken.text("a/x")), ("1", "2"));
}

#[test]
fn a_backslash_separates_where_windows_wrote_it_and_is_a_character_where_unix_did() {
    let taken = take(&zip([dos("a\\SKILL.md", b""), dos("a\\sub\\x", b"")])).unwrap();
    assert_eq!(taken.paths(), ["a", "a/SKILL.md", "a/sub", "a/sub/x"]);
    // A Unix host, yet no slash anywhere: some program means its separator.
    let taken = take(&zip([file("a\\SKILL.md", b""), file("a\\x", b"")])).unwrap();
    assert_eq!(taken.paths(), ["a", "a/SKILL.md", "a/x"]);
    let taken = take(&zip([file("a/SKILL.md", b""), file("a/x\\y", b"")])).unwrap();
    assert_eq!(taken.paths(), ["a", "a/SKILL.md", "a/x\\y"]);
}

#[test]
fn modification_times_are_kept_when_they_exist() {
    let mut extended = file("a/extended", b"");
    extended.extra = extra(0x5455, &[&[1], 1_000_000_001_u32.to_le_bytes().as_slice()].concat());
    let mut impossible = file("a/impossible", b"");
    impossible.date = 0;
    let taken = take(&zip([file("a/dos", b""), extended, impossible])).unwrap();
    assert_eq!(taken.modified["a/dos"], 1_709_208_000);
    assert_eq!(taken.modified["a/extended"], 1_000_000_001);
    assert!(taken.modified["a/impossible"] > 1_700_000_000, "the time of extraction");
}
