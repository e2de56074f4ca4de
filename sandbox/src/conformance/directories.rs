//! Making and listing directories.

use super::case::{Case, kind};
use crate::heads::{HeadQuery, Heads, LeftOut};
use crate::{DirEntry, ErrorKind, FileKind, SandboxExt};

laws! {
    mkdir_all_makes_what_is_missing_above [Changes] "three levels at once";
    mkdir_all_gives_its_bits_to_each_level [Changes] "700 and 777, under any umask";
    mkdir_all_leaves_what_is_there [Changes] "with its bits and its files";
    mkdir_all_of_the_workspace_does_nothing [Changes] "no error";
    mkdir_all_over_a_file_is_not_a_directory [Changes] "at the path and above it";
    a_directory_is_listed_by_the_bytes_of_the_names [] "sorted, capitals first, Chinese last";
    a_listing_tells_kinds_and_sizes [] "a file of five bytes and a directory";
    an_empty_directory_is_listed [] "no entries, no error";
    listing_what_is_not_there_is_not_found [] "a missing directory, and one below it";
    listing_a_file_is_not_a_directory [] "a file has no entries";
    the_workspace_is_listed [] "with the directory of this law in it";
    five_hundred_entries_are_listed [Changes] "all of them, each once";
    a_walk_finds_all_files_and_no_directories [] "with paths from its root, sorted by directory";
    a_walk_stops_at_its_bound [] "and says that there was more";
    files_of_one_name_are_found_with_how_they_begin [] "below each root in its turn, not in pruned directories, at most so many bytes";
    a_search_tells_what_it_left_out [] "a root that is missing, one with too many entries, and files after the last";
}

async fn mkdir_all_makes_what_is_missing_above(case: Case) {
    case.sandbox.mkdir_all(&case.alice, &case.path("一/二/三"), 0o755).await.unwrap();
    assert_eq!(case.names(&case.path("一/二")).await, ["三"]);
}

async fn mkdir_all_gives_its_bits_to_each_level(case: Case) {
    for bits in [0o700, 0o777] {
        let name = format!("{bits:o}");
        case.sandbox.mkdir_all(&case.alice, &case.path(&format!("{name}/below")), bits).await.unwrap();
        assert_eq!(case.mode(&case.path(&name)).await, bits);
        assert_eq!(case.mode(&case.path(&format!("{name}/below"))).await, bits);
    }
}

async fn mkdir_all_leaves_what_is_there(case: Case) {
    let path = case.put_dir("there").await;
    case.put("there/file", "kept").await;
    case.sandbox.mkdir_all(&case.alice, &path, 0o700).await.unwrap();
    case.sandbox.mkdir_all(&case.alice, &case.path("there/new"), 0o700).await.unwrap();
    assert_eq!((case.mode(&path).await, case.names(&path).await), (0o755, vec!["file".into(), "new".into()]));
}

async fn mkdir_all_of_the_workspace_does_nothing(case: Case) {
    let before = case.mode(&case.workspace).await;
    case.sandbox.mkdir_all(&case.alice, &case.workspace, 0o700).await.unwrap();
    assert_eq!(case.mode(&case.workspace).await, before);
}

async fn mkdir_all_over_a_file_is_not_a_directory(case: Case) {
    let path = case.put("file", "kept").await;
    for text in ["file", "file/below", "file/below/it"] {
        let made = case.sandbox.mkdir_all(&case.alice, &case.path(text), 0o755).await;
        assert_eq!(kind(made), ErrorKind::NotADirectory, "{text}");
    }
    assert_eq!(case.read(&path).await.unwrap(), "kept");
}

async fn a_directory_is_listed_by_the_bytes_of_the_names(case: Case) {
    for name in ["b", "a", "B", "中", "a-b", "a0", "10", "9"] {
        case.put(name, "").await;
    }
    assert_eq!(case.names(&case.dir).await, ["10", "9", "B", "a", "a-b", "a0", "b", "中"]);
}

async fn a_listing_tells_kinds_and_sizes(case: Case) {
    case.put("file", "12345").await;
    case.put_dir("目录").await;
    let mut entries = case.sandbox.read_dir(&case.alice, &case.dir).await.unwrap();
    entries[1].size = 0; // any number that the backend has
    assert_eq!(
        entries,
        [
            DirEntry { name: "file".into(), kind: FileKind::File, size: 5 },
            DirEntry { name: "目录".into(), kind: FileKind::Directory, size: 0 },
        ]
    );
}

async fn an_empty_directory_is_listed(case: Case) {
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn listing_what_is_not_there_is_not_found(case: Case) {
    for text in ["missing", "missing/below"] {
        let listed = case.sandbox.read_dir(&case.alice, &case.path(text)).await;
        assert_eq!(kind(listed), ErrorKind::NotFound, "{text}");
    }
}

async fn listing_a_file_is_not_a_directory(case: Case) {
    let path = case.put("file", "").await;
    assert_eq!(kind(case.sandbox.read_dir(&case.alice, &path).await), ErrorKind::NotADirectory);
}

async fn the_workspace_is_listed(case: Case) {
    let name = case.dir.file_name().unwrap().to_owned();
    assert!(case.names(&case.workspace).await.contains(&name));
}

async fn five_hundred_entries_are_listed(case: Case) {
    let names: Vec<String> = (0..500).map(|number| format!("{number:04}")).collect();
    for name in &names {
        case.write(&case.path(name), "").await.unwrap();
    }
    assert_eq!(case.names(&case.dir).await, names);
}

async fn furnish(case: &Case) {
    for name in ["b.txt", "a/1.txt", "a/b/2.txt", "c/3.txt"] {
        if let Some((directory, _)) = name.rsplit_once('/') {
            case.put_dir(directory).await;
        }
        case.put(name, "x").await;
    }
}

async fn a_walk_finds_all_files_and_no_directories(case: Case) {
    furnish(&case).await;
    let (found, more) = case.sandbox.walk(&case.alice, &case.dir, 100).await.unwrap();
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!((paths, more), (vec!["b.txt", "a/1.txt", "a/b/2.txt", "c/3.txt"], false));
}

async fn a_walk_stops_at_its_bound(case: Case) {
    furnish(&case).await;
    let (found, more) = case.sandbox.walk(&case.alice, &case.dir, 3).await.unwrap();
    assert_eq!((found.len(), more), (1, true));
}

/// Searches some directories of the case.
async fn find(case: &Case, roots: &[&str], entries_max: usize) -> Heads {
    case.sandbox.find_heads(&case.alice, &query(case, roots, entries_max)).await.unwrap()
}

fn query(case: &Case, roots: &[&str], entries_max: usize) -> HeadQuery {
    HeadQuery {
        roots: roots.iter().map(|root| case.path(root)).collect(),
        file_name: "SKILL.md",
        pruned: &["venv"],
        entries_max,
        levels_max: 2,
        files_max: 4,
        head_bytes: 5,
        bytes_max: 40,
    }
}

fn found(case: &Case, heads: Heads) -> Vec<(String, String)> {
    let relative = |(path, head): (crate::SandboxPath, crate::Result<bytes::Bytes>)| {
        let path = path.below(&case.dir).unwrap().to_owned();
        (path, String::from_utf8(head.unwrap().to_vec()).unwrap())
    };
    heads.files.into_iter().map(relative).collect()
}

async fn files_of_one_name_are_found_with_how_they_begin(case: Case) {
    for directory in ["b/技能", "b/venv", "b/1/2/3", "a", "c/SKILL.md"] {
        case.put_dir(directory).await;
    }
    let files = ["b/技能/SKILL.md", "b/skill.MD", "b/README.md", "b/venv/SKILL.md", "b/1/2/3/SKILL.md"];
    for path in files.into_iter().chain(["a/SKILL.md", "c/SKILL.md/other"]) {
        case.put(path, "1234567").await;
    }
    case.put("a/Skill.md", "123").await;
    let heads = find(&case, &["b", "a", "c"], 100).await;
    assert!(heads.left_out.is_empty(), "{:?}", heads.left_out);
    let expected = [
        ("b/skill.MD", "12345"),
        ("b/技能/SKILL.md", "12345"),
        ("a/SKILL.md", "12345"),
        ("a/Skill.md", "123"),
    ];
    assert_eq!(found(&case, heads), expected.map(|(path, head)| (path.to_owned(), head.to_owned())));
}

async fn a_search_tells_what_it_left_out(case: Case) {
    for directory in ["many", "few", "five"] {
        case.put_dir(directory).await;
    }
    for path in ["many/1", "many/2", "many/3", "many/SKILL.md", "few/SKILL.md"] {
        case.put(path, "x").await;
    }
    let heads = find(&case, &["many", "missing", "few"], 3).await;
    let [LeftOut::Entries(many), LeftOut::Directory(missing, error)] = heads.left_out.as_slice() else {
        panic!("{:?}", heads.left_out);
    };
    assert_eq!((many, missing), (&case.path("many"), &case.path("missing")));
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(found(&case, heads), [("few/SKILL.md".to_owned(), "x".to_owned())]);

    for name in ["SKILL.md", "SKILL.mD", "SKILL.Md", "SKILL.MD", "SKILl.md"] {
        case.put(&format!("five/{name}"), "x").await;
    }
    let heads = find(&case, &["five"], 100).await;
    assert!(
        matches!(heads.left_out.as_slice(), [LeftOut::Files { found: 5, read: 4 }]),
        "{:?}",
        heads.left_out
    );
    assert_eq!(heads.files.len(), 4);

    case.put_dir("large").await;
    for number in 0..4 {
        case.put_dir(&format!("large/{number}")).await;
        case.put(&format!("large/{number}/SKILL.md"), "12345").await;
    }
    let query = HeadQuery { bytes_max: 12, ..query(&case, &["large"], 100) };
    let heads = case.sandbox.find_heads(&case.alice, &query).await.unwrap();
    let left_out = heads.left_out.as_slice();
    assert!(matches!(left_out, [LeftOut::Files { found: 4, read: 2 }]), "{left_out:?}");
}
