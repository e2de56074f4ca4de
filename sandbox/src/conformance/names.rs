//! Names: a file of every name that a path can spell is a file like any other.

use super::case::Case;
use crate::{FileKind, SandboxPath};

laws! {
    names_with_spaces [Changes] "inside, at both ends, and nothing else";
    names_with_quotes [Changes] "single, double, backtick, and all of them";
    names_that_mean_something_to_a_shell [Changes] "`$(x)`, `*`, `;`, `|`, `&`, `>`, `~`, `!`, `#`";
    names_that_mean_something_in_an_address [Changes] "`%41`, `?`, `#`, `+`, `&=`, `;`, `@:`";
    names_that_look_like_options [Changes] "`-rf`, `--help`, `-`";
    names_with_dots [Changes] "`.hidden`, `a..b`, `...`, `..x`";
    names_with_backslashes [Changes] "which separate nothing";
    names_in_many_scripts [Changes] "Chinese, Arabic, Cyrillic, emoji";
    names_composed_and_decomposed_are_two [Changes] "`é` in two spellings is two files";
    names_in_two_cases_are_two [Changes] "`a` and `A`";
    names_of_255_bytes [Changes] "in ASCII, and in Chinese: 85 characters";
    paths_of_many_levels [Changes] "sixty directories deep";
    directories_with_difficult_names [Changes] "listed, written in, removed";
}

/// Writes, looks at, lists, replaces, reads and removes files of these names.
async fn round_trip(case: &Case, names: &[&str]) {
    for name in names {
        let path = case.path(name);
        case.write(&path, (*name).to_owned()).await.unwrap();
        assert_eq!(case.sandbox.stat(&case.alice, &path).await.unwrap().name, *name);
        case.write(&path, format!("{name} again")).await.unwrap();
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(case.names(&case.dir).await, sorted);
    for name in names {
        let path = case.path(name);
        assert_eq!(case.read(&path).await.unwrap(), format!("{name} again"));
        case.sandbox.remove(&case.alice, &path).await.unwrap();
    }
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn names_with_spaces(case: Case) {
    round_trip(&case, &["a b", " ", " a", "a ", "a  b", "全角　空格"]).await;
}

async fn names_with_quotes(case: Case) {
    round_trip(&case, &["it's", "\"", "'", "`x`", "'\"`'"]).await;
}

async fn names_that_mean_something_to_a_shell(case: Case) {
    round_trip(&case, &["$(x)", "$HOME", "*", "a;b", "a|b", "a&", ">x", "~", "!1", "{a,b}", "[a]", "#c"])
        .await;
}

async fn names_that_mean_something_in_an_address(case: Case) {
    round_trip(&case, &["%41", "%", "a?b=c", "#top", "a+b", "a&b=c", "a;b", "@:", "%2e%2e", "a%2Fb"]).await;
}

async fn names_that_look_like_options(case: Case) {
    round_trip(&case, &["-rf", "--help", "-", "--", "-n x"]).await;
}

async fn names_with_dots(case: Case) {
    round_trip(&case, &[".hidden", "a..b", "...", "..x", "x.", ".wh.x"]).await;
}

async fn names_with_backslashes(case: Case) {
    round_trip(&case, &["a\\b", "\\", "\\n", "a\\", "C:\\x"]).await;
}

async fn names_in_many_scripts(case: Case) {
    round_trip(&case, &["数据统计.csv", "مرحبا", "Привет", "日本語", "🦀.rs", "e\u{301}", "ｆｕｌｌ"]).await;
}

async fn names_composed_and_decomposed_are_two(case: Case) {
    round_trip(&case, &["\u{e9}", "e\u{301}"]).await;
}

async fn names_in_two_cases_are_two(case: Case) {
    round_trip(&case, &["readme", "README", "Readme"]).await;
}

async fn names_of_255_bytes(case: Case) {
    round_trip(&case, &["n".repeat(255).as_str(), "字".repeat(85).as_str()]).await;
}

async fn paths_of_many_levels(case: Case) {
    let deep: SandboxPath = case.path(&"层/".repeat(60));
    case.sandbox.mkdir_all(&case.alice, &deep, 0o755).await.unwrap();
    let path = deep.join("file").unwrap();
    case.write(&path, "deep").await.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "deep");
    case.sandbox.remove_all(&case.alice, &case.path("层")).await.unwrap();
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn directories_with_difficult_names(case: Case) {
    for name in ["-rf", "a b'c\"", "$(x);*", "%2e", "目录"] {
        let path = case.path(name);
        case.sandbox.mkdir_all(&case.alice, &path, 0o755).await.unwrap();
        case.write(&path.join("file").unwrap(), "x").await.unwrap();
        let entries = case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap();
        assert_eq!(
            entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect::<Vec<_>>(),
            [(name, FileKind::Directory)]
        );
        assert_eq!(case.names(&path).await, ["file"]);
        case.sandbox.remove_all(&case.alice, &path).await.unwrap();
    }
}
