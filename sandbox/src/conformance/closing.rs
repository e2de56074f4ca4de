//! Releasing what a backend holds.

use super::case::{Case, kind, user};
use crate::{ErrorKind, ExecSpec, ReadOptions, SandboxExt};

laws! {
    the_workspace_is_there_once_it_was_told [] "and is the same each time";
    the_name_is_a_word [] "without spaces, the same each time";
    closing_for_a_user_keeps_the_files [Changes Closing] "and the user goes on afterwards";
    closing_for_a_user_leaves_the_others [Changes Closing] "whose files and calls go on";
    closing_for_a_user_who_was_never_there_is_no_error [Closing] "nothing is held, nothing is released";
    after_closing_all_calls_are_disconnected [Closing] "each method, and closing again is no error";
    nothing_is_exported_by_itself [] "is_exporting is false";
}

async fn the_workspace_is_there_once_it_was_told(case: Case) {
    let path = case.sandbox.workspace(&case.bob).await.unwrap();
    case.sandbox.read_dir(&case.bob, &path).await.unwrap();
    assert_eq!(case.sandbox.workspace(&case.bob).await.unwrap(), path);
}

async fn the_name_is_a_word(case: Case) {
    let name = case.sandbox.name();
    assert!(!name.is_empty() && name.chars().all(|letter| letter.is_ascii_graphic()), "{name:?}");
}

async fn closing_for_a_user_keeps_the_files(case: Case) {
    let sandbox = case.subject.another().await;
    let path = sandbox.workspace(&case.alice).await.unwrap().join("file").unwrap();
    sandbox.write(&case.alice, &path, "kept".into()).await.unwrap();
    sandbox.close_for_user(&case.alice).await.unwrap();
    assert_eq!(sandbox.read(&case.alice, &path).await.unwrap(), "kept");
    sandbox.close().await.unwrap();
}

async fn closing_for_a_user_leaves_the_others(case: Case) {
    let sandbox = case.subject.another().await;
    let path = sandbox.workspace(&case.bob).await.unwrap().join("file").unwrap();
    sandbox.write(&case.bob, &path, "of bob".into()).await.unwrap();
    sandbox.workspace(&case.alice).await.unwrap();
    sandbox.close_for_user(&case.alice).await.unwrap();
    assert_eq!(sandbox.read(&case.bob, &path).await.unwrap(), "of bob");
    sandbox.close().await.unwrap();
}

async fn closing_for_a_user_who_was_never_there_is_no_error(case: Case) {
    let sandbox = case.subject.another().await;
    sandbox.close_for_user(&user("nobody")).await.unwrap();
    sandbox.close().await.unwrap();
}

async fn after_closing_all_calls_are_disconnected(case: Case) {
    let sandbox = case.subject.another().await;
    let alice = &case.alice;
    let dir = sandbox.workspace(alice).await.unwrap();
    let path = dir.join("file").unwrap();
    sandbox.close().await.unwrap();
    let kinds = [
        kind(sandbox.workspace(alice).await),
        kind(sandbox.shell(alice).await),
        kind(sandbox.exec(alice, ExecSpec::shell("exit 0")).await),
        kind(sandbox.read_file(alice, &path, ReadOptions::default()).await),
        kind(sandbox.write(alice, &path, "x".into()).await),
        kind(sandbox.stat(alice, &path).await),
        kind(sandbox.read_dir(alice, &dir).await),
        kind(sandbox.mkdir_all(alice, &path, 0o755).await),
        kind(sandbox.remove(alice, &path).await),
        kind(sandbox.remove_all(alice, &path).await),
        kind(sandbox.close_for_user(alice).await),
    ];
    assert_eq!(kinds, [ErrorKind::Disconnected; 11]);
    sandbox.close().await.unwrap();
}

async fn nothing_is_exported_by_itself(case: Case) {
    assert!(!case.sandbox.is_exporting(&case.alice));
}
