//! Many at once: writers, readers, commands, users.

use bytes::Bytes;
use futures_util::future::join_all;

use super::case::{Case, kind};
use crate::{ErrorKind, ExecSpec, SandboxExt, WriteMode, WriteOptions};

laws! {
    sixty_four_writers_never_tear_a_file [Changes] "each reader sees the whole text of one writer";
    of_many_creators_one_succeeds [Changes] "the others are told already_exists, and the file is the winner's";
    a_directory_is_made_by_many_at_once [Changes] "mkdir_all of one path by sixteen, no error";
    users_do_not_see_each_other [Changes] "the same path has other bytes, or none";
    users_do_not_reach_each_other_by_path [Changes Walls] "not by a path, and not through `..`";
    commands_of_users_do_not_see_each_other [Commands] "files of one are not in the other's directory";
    eight_commands_run_at_once [Commands] "each with its own output";
    a_slow_command_holds_nothing_up [Commands] "files are read and written meanwhile";
}

async fn sixty_four_writers_never_tear_a_file(case: Case) {
    let path = case.put("file", vec![b'a'; 50_000]).await;
    let writer = |number: u8| {
        let (case, path) = (case.clone(), path.clone());
        async move {
            case.write(&path, vec![b'a' + number % 26; 50_000 + usize::from(number)]).await.unwrap();
            let bytes = case.read(&path).await.unwrap();
            let first = bytes[0];
            assert!(bytes.len() >= 50_000 && bytes.iter().all(|byte| *byte == first), "torn");
            let number = bytes.len() - 50_000;
            assert!(first == b'a' + (number % 26) as u8, "the length of one writer and the bytes of another");
        }
    };
    join_all((0..64).map(|number| tokio::spawn(writer(number)))).await.into_iter().for_each(Result::unwrap);
    assert_eq!(case.names(&case.dir).await, ["file"]);
}

async fn of_many_creators_one_succeeds(case: Case) {
    let path = case.path("file");
    let options = WriteOptions { mode: WriteMode::Create, permissions: None };
    let creators = (0..16_u8).map(|number| {
        let (case, path, options) = (case.clone(), path.clone(), options.clone());
        let body = futures_util::stream::once(async move { Ok(Bytes::from(vec![number; 10_000])) });
        tokio::spawn(async move {
            let written = case.sandbox.write_file(&case.alice, &path, Box::pin(body), options).await;
            (number, written)
        })
    });
    let mut winners = Vec::new();
    for ended in join_all(creators).await {
        match ended.unwrap() {
            (number, Ok(_)) => winners.push(number),
            (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(case.read(&path).await.unwrap(), vec![winners[0]; 10_000]);
}

async fn a_directory_is_made_by_many_at_once(case: Case) {
    let path = case.path("一/二/三/四");
    let makers = (0..16).map(|_| {
        let (case, path) = (case.clone(), path.clone());
        tokio::spawn(async move { case.sandbox.mkdir_all(&case.alice, &path, 0o755).await })
    });
    for made in join_all(makers).await {
        made.unwrap().unwrap();
    }
    assert_eq!(case.names(&case.path("一/二/三")).await, ["四"]);
}

async fn users_do_not_see_each_other(case: Case) {
    let path = case.put("file", "of alice").await;
    let theirs =
        case.sandbox.workspace(&case.bob).await.unwrap().join(path.below(&case.workspace).unwrap()).unwrap();
    assert_eq!(kind(case.sandbox.read(&case.bob, &theirs).await), ErrorKind::NotFound);
    case.sandbox.mkdir_all(&case.bob, &theirs.parent().unwrap(), 0o755).await.unwrap();
    case.sandbox.write(&case.bob, &theirs, "of bob".into()).await.unwrap();
    assert_eq!(case.read(&path).await.unwrap(), "of alice");
    assert_eq!(case.sandbox.read(&case.bob, &theirs).await.unwrap(), "of bob");
}

async fn users_do_not_reach_each_other_by_path(case: Case) {
    let theirs = case.sandbox.workspace(&case.bob).await.unwrap();
    case.sandbox.write(&case.bob, &theirs.join("secret").unwrap(), "of bob".into()).await.unwrap();
    for text in ["../bob/secret", "../../bob/secret", "../../../bob/secret"] {
        let Ok(path) = case.workspace.join(text) else { continue };
        assert_eq!(kind(case.read(&path).await), ErrorKind::PermissionDenied, "{text}");
    }
    if theirs != case.workspace {
        let read = case.read(&theirs.join("secret").unwrap()).await;
        assert_eq!(kind(read), ErrorKind::PermissionDenied);
    }
}

async fn commands_of_users_do_not_see_each_other(case: Case) {
    case.put("of-alice", "").await;
    let law = case.dir.file_name().unwrap();
    let theirs = case.sandbox.workspace(&case.bob).await.unwrap().join(law).unwrap();
    case.subject.furnisher().await.mkdir_all(&case.bob, &theirs, 0o755).await.unwrap();
    let spec = ExecSpec { directory: Some(theirs), ..ExecSpec::shell("ls; pwd") };
    let result = case.sandbox.exec(&case.bob, spec).await.unwrap();
    assert!(result.is_success() && !result.stdout_text().contains("of-alice"), "{result:?}");
}

async fn eight_commands_run_at_once(case: Case) {
    let runs = (0..8).map(|number| {
        let case = case.clone();
        tokio::spawn(async move { (number, case.shell(&format!("sleep 0.2; echo 第{number}")).await) })
    });
    for run in join_all(runs).await {
        let (number, result) = run.unwrap();
        assert_eq!(result.stdout_text(), format!("第{number}\n"), "{}", result.stderr_text());
    }
}

async fn a_slow_command_holds_nothing_up(case: Case) {
    let path = case.put("file", "old").await;
    // The command ends when a file is there that the law writes while the command runs.
    let script = "echo > running; while ! test -e go; do sleep 0.05; done; echo went";
    let reading = async {
        while !case.sandbox.exists(&case.alice, &case.path("running")).await.unwrap() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(case.read(&path).await.unwrap(), "old");
        assert!(case.shell("exit 0").await.is_success());
        case.put("go", "").await;
    };
    let (result, ()) = tokio::join!(case.shell(script), reading);
    assert_eq!(result.stdout_text(), "went\n");
}
