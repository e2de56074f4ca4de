//! Names in the encodings of real machines.

use encoding_rs::GBK;
use storage::Error;
use storage::archive::{ArchiveError, Charset, NameEncoding, Options};

use super::builder::*;
use super::taking::{take, take_with};

fn gbk(text: &str) -> Vec<u8> {
    GBK.encode(text).0.into_owned()
}

fn paths_of(entries: Vec<Entry>) -> (Vec<String>, NameEncoding) {
    let taken = take(&zip(entries)).unwrap();
    (taken.paths().into_iter().map(str::to_owned).collect(), taken.plan.charset)
}

#[test]
fn a_chinese_tree_packed_on_windows_reads_as_gbk() {
    let names = ["数据分析/SKILL.md", "数据分析/脚本/运行.py", "数据分析/说明 文档.md"];
    let (paths, charset) = paths_of(names.iter().map(|name| dos(gbk(name), b"")).collect());
    assert_eq!(
        paths,
        ["数据分析", "数据分析/SKILL.md", "数据分析/脚本", "数据分析/脚本/运行.py", "数据分析/说明 文档.md"]
    );
    assert_eq!(charset, NameEncoding::Gbk);
}

#[test]
fn ambiguous_names_from_windows_read_as_gbk() {
    for word in ["一", "系统", "学校", "专业", "统一"] {
        let (paths, charset) = paths_of(vec![dos(gbk(&format!("a/{word}")), b"")]);
        assert_eq!((paths, charset), (vec!["a".into(), format!("a/{word}")], NameEncoding::Gbk));
    }
}

#[test]
fn a_backslash_inside_a_chinese_character_is_no_separator() {
    for name in ["誠信.txt", "許功蓋.md"] {
        let (paths, _) = paths_of(vec![dos(gbk(&format!("a\\{name}")), b"")]);
        assert_eq!(paths, ["a".to_owned(), format!("a/{name}")]);
    }
}

#[test]
fn one_clear_name_settles_the_whole_archive_whatever_the_host() {
    let entries = vec![file(gbk("a/一"), b""), file(gbk("a/数据分析"), b"")];
    assert_eq!(paths_of(entries), (vec!["a".into(), "a/一".into(), "a/数据分析".into()], NameEncoding::Gbk));
}

#[test]
fn unmarked_utf_8_from_unix_stays_utf_8() {
    for name in ["a/数据", "a/Καλημέρα", "a/привет", "a/һ"] {
        assert_eq!(paths_of(vec![file(name, b"")]), (vec!["a".into(), name.into()], NameEncoding::Utf8));
    }
}

#[test]
fn marked_names_stand_beside_gbk_ones() {
    let marked = Entry { flags: 1 << 11, ..dos("a/表情😀", b"") };
    let (paths, charset) = paths_of(vec![marked, dos(gbk("a/中文"), b"")]);
    assert_eq!((paths, charset), (vec!["a".into(), "a/中文".into(), "a/表情😀".into()], NameEncoding::Gbk));
}

#[test]
fn the_unicode_field_names_an_entry_only_when_its_checksum_fits() {
    let name = gbk("a/数据");
    let mut true_field = dos(&name, b"");
    true_field.extra = unicode_path(&name, "a/真名");
    assert_eq!(paths_of(vec![true_field.clone()]).0, ["a", "a/真名"]);
    true_field.extra[6] ^= 1;
    assert_eq!(paths_of(vec![true_field]).0, ["a", "a/数据"]);
}

#[test]
fn the_sender_may_name_the_charset() {
    let with = |charset, entry| take_with(&zip([entry]), &Options { charset, ..Options::default() });
    let taken = with(Charset::Utf8, dos(gbk("a/一"), b"")).unwrap();
    assert_eq!((taken.paths(), taken.plan.charset), (vec!["a", "a/һ"], NameEncoding::Utf8));
    let taken = with(Charset::Gbk, file(gbk("a/一"), b"")).unwrap();
    assert_eq!((taken.paths(), taken.plan.charset), (vec!["a", "a/一"], NameEncoding::Gbk));
    let refused = with(Charset::Utf8, dos(gbk("a/数据分析"), b""));
    assert!(matches!(refused, Err(Error::Archive(ArchiveError::Undecodable { charset: "utf-8", .. }))));
}

#[test]
fn the_skill_itself_may_have_an_ambiguous_name() {
    let taken = take(&zip([dos(gbk("系统/SKILL.md"), b"")])).unwrap();
    assert_eq!(taken.ids(), ["系统"]);
}
