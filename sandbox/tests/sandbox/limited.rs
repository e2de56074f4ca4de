//! The calls that adapters refuse.

use std::sync::Arc;
use std::time::Duration;

use sandbox::{
    ErrorKind, ExecSpec, Limited, Limits, MemSandbox, ReadOnly, ReadOptions, Sandbox, SandboxExt,
    SandboxPath, UserId,
};

fn alice() -> (UserId, SandboxPath) {
    (UserId::parse("alice").unwrap(), "/workspace/file".parse().unwrap())
}

#[tokio::test]
async fn a_call_that_finds_no_place_in_time_is_busy_and_an_open_file_holds_its_place() {
    let (user, path) = alice();
    let limits = Limits { calls: 1, wait: Duration::from_millis(50), ..Limits::default() };
    let limited = Limited::new(Arc::new(MemSandbox::new()), limits);
    limited.write(&user, &path, "text".into()).await.unwrap();
    let body = limited.read_file(&user, &path, ReadOptions::default()).await.unwrap();
    assert_eq!(limited.stat(&user, &path).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(body.bytes().await.unwrap(), "text");
    assert_eq!(limited.stat(&user, &path).await.unwrap().size, 4);
}

#[tokio::test]
async fn files_beyond_the_limit_are_too_large_both_ways_and_stay_as_they_were() {
    let (user, path) = alice();
    let inner = Arc::new(MemSandbox::new());
    let limited = Limited::new(inner.clone(), Limits { file_bytes: 4, ..Limits::default() });
    limited.write(&user, &path, "four".into()).await.unwrap();
    let written = limited.write(&user, &path, "five!".into()).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(limited.read(&user, &path).await.unwrap(), "four");
    inner.write(&user, &path, "five!".into()).await.unwrap();
    assert_eq!(limited.read(&user, &path).await.unwrap_err().kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn where_files_may_only_be_looked_at_every_change_is_denied_and_nothing_runs() {
    let (user, path) = alice();
    let inner = Arc::new(MemSandbox::new());
    inner.write(&user, &path, "old".into()).await.unwrap();
    let reading = ReadOnly::new(inner);
    let kinds = [
        reading.write(&user, &path, "new".into()).await.unwrap_err().kind(),
        reading.mkdir_all(&user, &path, 0o755).await.unwrap_err().kind(),
        reading.remove(&user, &path).await.unwrap_err().kind(),
        reading.remove_all(&user, &path).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::PermissionDenied; 4]);
    let run = reading.exec(&user, ExecSpec::shell("true")).await;
    assert_eq!(run.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(reading.read(&user, &path).await.unwrap(), "old");
}
