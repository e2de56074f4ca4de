//! Removing files and directories.

use super::case::{Case, kind};
use crate::ErrorKind;

laws! {
    a_removed_file_is_gone [Changes] "and removing it again is not_found";
    an_empty_directory_is_removed [Changes] "by remove";
    a_directory_with_entries_is_not_empty [Changes] "by remove, and stays with all in it";
    removing_what_is_not_there_is_not_found [Changes] "a missing name, and one in a missing directory";
    removing_below_a_file_is_not_a_directory [Changes] "`file/x`";
    remove_all_removes_a_tree [Changes] "files and directories of three levels";
    remove_all_removes_a_file [Changes] "as remove does";
    remove_all_of_nothing_is_no_error [Changes] "a missing name, one in a missing directory, one below a file";
    the_workspace_cannot_be_removed [Changes] "invalid, by remove and remove_all, and nothing is lost";
    a_removed_name_can_be_used_again [Changes] "for a directory where a file was, and the reverse";
}

async fn a_removed_file_is_gone(case: Case) {
    let path = case.put("file", "x").await;
    case.sandbox.remove(&case.alice, &path).await.unwrap();
    assert_eq!(kind(case.read(&path).await), ErrorKind::NotFound);
    assert_eq!(kind(case.sandbox.remove(&case.alice, &path).await), ErrorKind::NotFound);
}

async fn an_empty_directory_is_removed(case: Case) {
    let path = case.put_dir("dir").await;
    case.sandbox.remove(&case.alice, &path).await.unwrap();
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn a_directory_with_entries_is_not_empty(case: Case) {
    let path = case.put_dir("dir").await;
    case.put("dir/file", "kept").await;
    assert_eq!(kind(case.sandbox.remove(&case.alice, &path).await), ErrorKind::NotEmpty);
    assert_eq!(case.names(&path).await, ["file"]);
}

async fn removing_what_is_not_there_is_not_found(case: Case) {
    for text in ["missing", "missing/below"] {
        let removed = case.sandbox.remove(&case.alice, &case.path(text)).await;
        assert_eq!(kind(removed), ErrorKind::NotFound, "{text}");
    }
}

async fn removing_below_a_file_is_not_a_directory(case: Case) {
    case.put("file", "x").await;
    let removed = case.sandbox.remove(&case.alice, &case.path("file/x")).await;
    assert_eq!(kind(removed), ErrorKind::NotADirectory);
}

async fn remove_all_removes_a_tree(case: Case) {
    case.put_dir("a/b/c").await;
    for name in ["a/1", "a/b/2", "a/b/c/3"] {
        case.put(name, "x").await;
    }
    case.put("kept", "x").await;
    case.sandbox.remove_all(&case.alice, &case.path("a")).await.unwrap();
    assert_eq!(case.names(&case.dir).await, ["kept"]);
}

async fn remove_all_removes_a_file(case: Case) {
    let path = case.put("file", "x").await;
    case.sandbox.remove_all(&case.alice, &path).await.unwrap();
    assert_eq!(case.names(&case.dir).await, [""; 0]);
}

async fn remove_all_of_nothing_is_no_error(case: Case) {
    case.put("file", "x").await;
    for text in ["missing", "missing/below", "file/below"] {
        case.sandbox.remove_all(&case.alice, &case.path(text)).await.unwrap();
    }
    assert_eq!(case.names(&case.dir).await, ["file"]);
}

async fn the_workspace_cannot_be_removed(case: Case) {
    case.put("file", "kept").await;
    assert_eq!(kind(case.sandbox.remove(&case.alice, &case.workspace).await), ErrorKind::Invalid);
    assert_eq!(kind(case.sandbox.remove_all(&case.alice, &case.workspace).await), ErrorKind::Invalid);
    assert_eq!(case.names(&case.dir).await, ["file"]);
}

async fn a_removed_name_can_be_used_again(case: Case) {
    let path = case.put("name", "x").await;
    case.sandbox.remove(&case.alice, &path).await.unwrap();
    case.sandbox.mkdir_all(&case.alice, &path, 0o755).await.unwrap();
    case.sandbox.remove(&case.alice, &path).await.unwrap();
    case.write(&path, "again").await.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "again");
}
