//! What skills say of themselves, as people really write it.

use storage::metadata::{HEADER_BYTES_MAX, NO_DESCRIPTION, declared_name, marker, parse};

/// A SKILL.md in the directory `dir`, and what must come out.
struct Row {
    law: &'static str,
    text: &'static str,
    name: &'static str,
    description: &'static str,
    warnings: usize,
}

const fn row(
    law: &'static str,
    text: &'static str,
    name: &'static str,
    description: &'static str,
    warnings: usize,
) -> Row {
    Row { law, text, name, description, warnings }
}

/// `warnings` is how many rules are broken, the name not being that of the directory (`dir`) among them.
const TABLE: &[Row] = &[
    row(
        "valid",
        "---\nname: dir\ndescription: Does things.\n---\n# Title\n\nBody.\n",
        "dir",
        "Does things.",
        0,
    ),
    row(
        "valid, chinese",
        "---\nname: dir\ndescription: 分析数据，生成报告。\n---\n",
        "dir",
        "分析数据，生成报告。",
        0,
    ),
    row("byte order mark", "\u{FEFF}---\nname: dir\ndescription: d\n---\n", "dir", "d", 1),
    row("dos line ends", "---\r\nname: dir\r\ndescription: d\r\n---\r\nBody\r\n", "dir", "d", 0),
    row("blank lines first", "\n\n---\nname: dir\ndescription: d\n---\n", "dir", "d", 1),
    row("spaces after the fence", "---  \nname: dir\ndescription: d\n---\t\n", "dir", "d", 0),
    row("yaml document end", "---\nname: dir\ndescription: d\n...\nname: body\n", "dir", "d", 1),
    row("quoted", "---\nname: \"dir\"\ndescription: 'a: b'\n---\n", "dir", "a: b", 0),
    row("folded block", "---\nname: dir\ndescription: >-\n  one\n  two\n---\n", "dir", "one two", 0),
    row("literal block", "---\nname: dir\ndescription: |\n  one\n  two\n---\n", "dir", "one\ntwo", 0),
    row("keys in capitals", "---\nName: dir\nDESCRIPTION: d\n---\n", "dir", "d", 1),
    row("number as name", "---\nname: 2024\ndescription: d\n---\n", "2024", "d", 1),
    row("fence inside a value", "---\nname: dir\ndescription: a --- b\n---\n", "dir", "a --- b", 0),
    row(
        "unquoted colon",
        "---\nname: dir\ndescription: Use when: always\n---\n",
        "dir",
        "Use when: always",
        1,
    ),
    row("bold keys", "---\n**name**: dir\n**description**: d\n---\n", "dir", "d", 1),
    row("bold keys, colon inside", "---\n**name:** dir\n**description:** d\n---\n", "dir", "d", 1),
    row("full-width colons", "---\nname：dir\ndescription：分析数据\n---\n", "dir", "分析数据", 1),
    row("one full-width colon", "---\nname: dir\ndescription：分析：数据\n---\n", "dir", "分析：数据", 1),
    row("curved quotes", "---\nname: “dir\ndescription： “分析”\n---\n", "“dir", "分析", 3),
    row(
        "broken yaml, block",
        "---\nname: dir\nx: [\ndescription: >\n  one\n  two\n---\n",
        "dir",
        "one two",
        1,
    ),
    row("tab indent", "---\nname: dir\n\tx: y\ndescription: d\n---\n", "dir x: y", "d", 3),
    row("no fences", "name: dir\ndescription: d\n\n# Title\n", "dir", "d", 1),
    row("no fences, full-width", "name：dir\ndescription：描述\n正文\n", "dir", "描述", 1),
    row("fence never closed", "---\nname: dir\ndescription: d\n\n# Title\n\nname: body\n", "dir", "d", 1),
    row(
        "body lines are no fields",
        "# Title\n\nname: hijack\ndescription: hijack\n",
        "Title",
        "name: hijack description: hijack",
        1,
    ),
    row("body after front matter", "---\ndescription: d\n---\nname: hijack\n", "dir", "d", 1),
    row("duplicate keys: the first", "---\nname: dir\nname: other\ndescription: d\n---\n", "dir", "d", 1),
    row(
        "heading and paragraph",
        "# 数据分析\n\n第一段，\n第二行。\n\n第二段。\n",
        "数据分析",
        "第一段， 第二行。",
        1,
    ),
    row("no heading", "Only prose here.\n", "dir", "Only prose here.", 1),
    row("heading in a code fence", "```sh\n# not a title\n```\n# Title\n\ntext\n", "Title", "text", 1),
    row("closing hashes and emphasis", "# **Title** ##\n\ntext\n", "Title", "text", 1),
    row("hashtag is no heading", "#tag\n# Title\n", "Title", NO_DESCRIPTION, 1),
    row(
        "lists and badges are no prose",
        "# T\n\n[![b](u)](v)\n\n- one\n- two\n\n| a |\n\n> Quoted.\n",
        "T",
        "Quoted.",
        1,
    ),
    row("control characters are no text", "\u{E}", "dir", NO_DESCRIPTION, 1),
    row("empty", "", "dir", NO_DESCRIPTION, 1),
    row("only fences", "---\n---\n", "dir", NO_DESCRIPTION, 3),
    row("blank values", "---\nname:\ndescription: \"\"\n---\n# T\n\ntext\n", "T", "text", 2),
    row("front matter is a list", "---\n- name\n---\n# T\n", "T", NO_DESCRIPTION, 3),
    row("name of another directory", "---\nname: other\ndescription: d\n---\n", "other", "d", 1),
    row("capitals and spaces", "---\nname: My Skill\ndescription: d\n---\n", "My Skill", "d", 2),
    row("two hyphens", "---\nname: -a--b-\ndescription: d\n---\n", "-a--b-", "d", 2),
    row("chinese name", "---\nname: 数据分析\ndescription: d\n---\n", "数据分析", "d", 1),
    row("name over lines", "---\nname: |\n  a\n  b\ndescription: d\n---\n", "a b", "d", 2),
    row("markup is text", "---\nname: dir\ndescription: <b>&amp;</b>\n---\n", "dir", "<b>&amp;</b>", 0),
    row(
        "billion laughs",
        "---\na: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nname: dir\ndescription: d\n---\n",
        "dir",
        "d",
        2,
    ),
];

#[test]
fn headers_are_read_as_this_table_says() {
    for Row { law, text, name, description, warnings } in TABLE {
        let metadata = parse(Some(text.as_bytes()), None, "dir");
        assert_eq!((metadata.name.as_str(), metadata.description.as_str()), (*name, *description), "{law}");
        assert_eq!(metadata.warnings.len(), *warnings, "{law}: {:?}", metadata.warnings);
    }
}

#[test]
fn a_readme_stands_in_for_what_skill_md_lacks() {
    let readme = "---\ntitle: site\n---\n# Readme title\n\nReadme text.\n".as_bytes();
    let metadata = parse(None, Some(readme), "dir");
    assert_eq!((metadata.name.as_str(), metadata.description.as_str()), ("Readme title", "Readme text."));
    assert_eq!(metadata.warnings, ["the skill has no SKILL.md"]);
    let metadata = parse(Some(b"---\nname: dir\n---\n"), Some(readme), "dir");
    assert_eq!((metadata.name.as_str(), metadata.description.as_str()), ("dir", "Readme text."));
    let metadata = parse(None, None, "dir");
    assert_eq!((metadata.name.as_str(), metadata.description.as_str()), ("dir", NO_DESCRIPTION));
}

#[test]
fn text_that_is_not_utf_8_is_read_with_a_warning() {
    let text = "---\nname: dir\ndescription: 分析数据\n---\n";
    let gbk = encoding_rs::GBK.encode(text).0.into_owned();
    let metadata = parse(Some(&gbk), None, "dir");
    assert_eq!(metadata.description, "分析数据");
    assert_eq!(metadata.warnings, ["SKILL.md is not UTF-8: it was read as gb18030"]);
    let utf_16: Vec<u8> =
        "\u{FEFF}".chars().chain(text.chars()).flat_map(|c| (c as u16).to_le_bytes()).collect();
    let metadata = parse(Some(&utf_16), None, "dir");
    assert_eq!(metadata.description, "分析数据");
    assert_eq!(metadata.warnings, ["SKILL.md is not UTF-8: it was read as UTF-16LE"]);
    // Neither: read leniently, never refused.
    assert_eq!(parse(Some(b"\xFF\xFE\xFD\x80"), Some(b"\x80\x80"), "dir").name, "dir");
}

#[test]
fn a_file_cut_within_a_character_is_still_utf_8() {
    let text = format!("---\nname: dir\ndescription: d\n---\nx{}", "数".repeat(HEADER_BYTES_MAX));
    for bytes in [HEADER_BYTES_MAX, HEADER_BYTES_MAX + 1, text.len()] {
        assert!(parse(Some(&text.as_bytes()[..bytes]), None, "dir").warnings.is_empty());
    }
}

#[test]
fn further_fields_are_kept() {
    let text = "---\nname: dir\ndescription: d\nlicense: MIT\ncompatibility: needs git\n\
        allowed-tools: Bash(git:*) Read\nmetadata:\n  author: 张三\n  version: 1.0\n---\n";
    let metadata = parse(Some(text.as_bytes()), None, "dir");
    assert_eq!(metadata.license.as_deref(), Some("MIT"));
    assert_eq!(metadata.compatibility.as_deref(), Some("needs git"));
    assert_eq!(metadata.allowed_tools.as_deref(), Some("Bash(git:*) Read"));
    let properties: Vec<_> =
        metadata.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(properties, [("author", "张三"), ("version", "1.0")]);
    let list = "---\nname: dir\ndescription: d\nallowed-tools: [Read, Write]\n---\n";
    assert_eq!(parse(Some(list.as_bytes()), None, "dir").allowed_tools.as_deref(), Some("Read Write"));
}

#[test]
fn everything_given_out_is_bounded() {
    let text = format!("---\nname: {}\ndescription: {}\n---\n", "n".repeat(5_000), "d".repeat(9_000));
    let metadata = parse(Some(text.as_bytes()), None, "dir");
    assert_eq!((metadata.name.len(), metadata.description.len()), (256, 4096));
    assert_eq!(metadata.warnings.len(), 3, "{:?}", metadata.warnings);
    let escape = parse(Some("---\nname: \"a\\eb\"\ndescription: \"c\\ad\"\n---\n".as_bytes()), None, "dir");
    assert_eq!((escape.name.as_str(), escape.description.as_str()), ("a b", "cd"));
}

#[test]
fn a_billion_laughs_are_stopped_in_time() {
    let mut text = "---\nname: dir\ndescription: d\na0: &a0 x\n".to_owned();
    for level in 1..60 {
        let line = format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(","));
        text.push_str(&line);
    }
    text.push_str("---\n");
    let started = std::time::Instant::now();
    assert_eq!(parse(Some(text.as_bytes()), None, "dir").name, "dir");
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

#[test]
fn few_aliases_of_a_long_list_are_stopped_before_they_take_memory() {
    let copied = |name: &str, times: usize| vec![format!("*{name}"); times].join(",");
    let text = format!(
        "---\nname: dir\ndescription: d\na: &a [{}]\nb: &b [{}]\nc: &c [{}]\nd: [{}]\n---\n",
        vec!["x"; 1100].join(","),
        copied("a", 250),
        copied("b", 250),
        copied("c", 250)
    );
    assert!(text.len() < 4800);
    let metadata = parse(Some(text.as_bytes()), None, "dir");
    assert_eq!((metadata.name.as_str(), metadata.description.as_str()), ("dir", "d"));
    let told = "the front matter of SKILL.md has more brackets, levels, fields or aliases than are read: make it simpler";
    assert_eq!(metadata.warnings, [told]);
}

#[test]
fn a_header_that_is_too_long_for_yaml_is_read_line_by_line() {
    let text = format!("---\nname: dir\ndescription: d\nx: {}\n---\nBody\n", "y".repeat(20_000));
    let metadata = parse(Some(text.as_bytes()), None, "dir");
    assert_eq!((metadata.name.as_str(), metadata.description.as_str()), ("dir", "d"));
    assert_eq!(metadata.warnings, ["the front matter of SKILL.md has more than 16384 bytes: shorten it"]);
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    for opening in ["[", "{a: ", "- ", "? "] {
        let text = format!("---\nname: dir\nx: {}\n---\n", opening.repeat(10_000));
        assert_eq!(parse(Some(text.as_bytes()), None, "dir").name, "dir");
    }
}

#[test]
fn the_exact_spelling_is_preferred() {
    let chosen = |names: &[&'static str]| {
        let markers = marker(names.iter().copied());
        (markers.skill_md, markers.readme)
    };
    assert_eq!(chosen(&["a", "skill.md", "SKILL.md", "Skill.md"]), (Some("SKILL.md"), None));
    assert_eq!(chosen(&["Skill.md", "skill.md", "readme.md"]), (Some("skill.md"), Some("readme.md")));
    assert_eq!(chosen(&["Skill.md", "SKILL.MD", "ReadMe.md"]), (Some("SKILL.MD"), Some("ReadMe.md")));
    assert_eq!(chosen(&["xSKILL.md", "SKILL.mdx"]), (None, None));
    let names = [std::ffi::OsString::from("SKILL.md")];
    assert_eq!(marker(names.iter().map(std::ffi::OsString::as_os_str)).skill_md, Some(names[0].as_os_str()));
}

#[test]
fn only_the_header_declares_a_name() {
    assert_eq!(declared_name(b"---\nname: x\n---\n").as_deref(), Some("x"));
    assert_eq!(declared_name(b"# T\n\nname: x\n"), None);
}

mod never {
    use proptest::prelude::*;
    use storage::metadata::parse;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_give_a_name_and_a_description(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let metadata = parse(Some(&bytes), Some(&bytes), "dir");
            prop_assert!(!metadata.name.is_empty() && !metadata.description.is_empty());
            prop_assert!(metadata.name.chars().count() <= 256);
        }

        #[test]
        fn any_header_like_text_gives_a_name_and_a_description(
            text in "(---\n)?((name|description|x|\\*\\*name\\*\\*)[:：] ?[ -~数据\n]{0,30}\n?){0,6}(---\n)?\\PC{0,60}",
        ) {
            let metadata = parse(Some(text.as_bytes()), None, "dir");
            prop_assert!(!metadata.name.is_empty() && !metadata.description.is_empty());
        }
    }
}
