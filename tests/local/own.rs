//! What the service in this process promises beside the contract.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::tools::Search;
use filesecbox::ops::upload::{Archive, Intake, Taking};
use filesecbox::ops::versions::Publisher;
use libtest_mimic::Trial;
use policy::{Scope, TreeId};
use sandbox::conformance::Subject;
use sandbox::{AgentId, ErrorKind, ExecSpec, Sandbox, SandboxExt, SandboxPath, UserId};
use serde_json::Value;
use storage::WorkspaceId;
use storage::archive::Charset;
use tokio::runtime::Runtime;

use crate::host::{Host, of_agent};
use crate::play::play;
use crate::preparing;
use crate::zip::skill_zip;

/// How long something that must happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Test = fn(Arc<Host>) -> futures_util::future::BoxFuture<'static, ()>;

pub(crate) fn trials(runtime: &Arc<Runtime>, host: &Arc<Host>) -> Vec<Trial> {
    let tests: [(&str, Test); 8] = [
        ("the_tools_answer_as_in_memory_by_programs", |host| Box::pin(transcript(host, Search::Programs))),
        ("the_tools_answer_as_in_memory_by_files", |host| Box::pin(transcript(host, Search::Files))),
        ("skills_are_merged_at_their_place", |host| Box::pin(skills_are_merged_at_their_place(host))),
        ("every_change_is_in_the_audit_log", |host| Box::pin(every_change_is_in_the_audit_log(host))),
        ("reading_is_a_use_of_the_workspace", |host| Box::pin(reading_is_a_use_of_the_workspace(host))),
        ("a_file_of_tiny_pieces_is_whole", |host| Box::pin(a_file_of_tiny_pieces_is_whole(host))),
        ("steps_of_code_come_first_under_the_lease_of_the_given_store", |host| {
            Box::pin(preparing::steps_of_code_come_first_under_the_lease_of_the_given_store(host))
        }),
        ("a_command_leaves_no_name_behind", |host| Box::pin(a_command_leaves_no_name_behind(host))),
    ];
    let trial = |(name, test): (&str, Test)| {
        let (runtime, host) = (runtime.clone(), host.clone());
        Trial::test(format!("local::{name}"), move || {
            runtime.block_on(test(host));
            Ok(())
        })
    };
    tests.into_iter().map(trial).collect()
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

async fn transcript(host: Arc<Host>, search: Search) {
    let name = format!("{search:?}").to_lowercase();
    println!("{:?}", play(&*host.sandbox().await, &user(&name), search, true).await);
}

async fn skills_are_merged_at_their_place(host: Arc<Host>) {
    const AGENT: &str = "skilled";
    let (alice, bob) = (user("alice"), user("bob"));
    let mut spool = host.service.store().spool(&alice).unwrap();
    spool.write(&skill_zip("数据", &[("表.md", "of all\n")])).unwrap();
    let archive = Archive { spool, file_name: Some("数据.zip".to_owned()) };
    let agent = AgentId::parse(AGENT).unwrap();
    let intake = Intake {
        scope: Scope::Baseline,
        charset: Charset::Auto,
        publisher: Publisher::new("host".to_owned(), None, None).unwrap(),
        is_rehearsal: false,
        taking: Taking::All,
    };
    host.service.upload(intake, alice.clone(), agent, vec![archive]).await.unwrap();

    let sandbox = of_agent(&host.service, AGENT, true);
    let names = |entries: Vec<sandbox::DirEntry>| -> Vec<String> {
        entries.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(sandbox.read_dir(&alice, &path("/workspace/skills")).await.unwrap()), ["数据"]);
    let shared = path("/workspace/skills/数据/表.md");
    assert_eq!(sandbox.read(&alice, &shared).await.unwrap(), "of all\n");
    sandbox.write(&alice, &shared, "of alice\n".into()).await.unwrap();
    assert_eq!(sandbox.read(&alice, &shared).await.unwrap(), "of alice\n");
    assert_eq!(sandbox.read(&bob, &shared).await.unwrap(), "of all\n");
    for kept in ["/workspace/skills", "/workspace/skills/数据"] {
        let kind = sandbox.remove_all(&alice, &path(kept)).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Invalid, "{kept}");
    }

    // In the skill, at every tier; from the workspace, where skills are mounted into it.
    let in_skill = ExecSpec { directory: shared.parent(), ..ExecSpec::argv("cat", ["表.md"]) };
    assert_eq!(sandbox.exec(&alice, in_skill).await.unwrap().stdout_text(), "of alice\n");
    if host.service.launcher().mounts() {
        let from_workspace = ExecSpec::argv("cat", ["skills/数据/表.md"]);
        assert_eq!(sandbox.exec(&alice, from_workspace).await.unwrap().stdout_text(), "of alice\n");
    } else {
        println!("SKIPPED: commands of a workspace see skills at tier `namespaces` only");
    }
}

async fn every_change_is_in_the_audit_log(host: Arc<Host>) {
    let (sandbox, audited) = (host.sandbox().await, user("audited"));
    let file = path("/workspace/目录/file");
    sandbox.mkdir_all(&audited, &file.parent().unwrap(), 0o755).await.unwrap();
    sandbox.write(&audited, &file, "not to be recorded".into()).await.unwrap();
    sandbox.read(&audited, &file).await.unwrap();
    sandbox.exec(&audited, ExecSpec::argv("echo", ["nor this"])).await.unwrap();
    sandbox.exec(&audited, ExecSpec::argv("perl", ["-v"])).await.unwrap_err();
    sandbox.remove(&audited, &file).await.unwrap();
    sandbox.remove(&audited, &file).await.unwrap_err();

    let expected = [
        ("mkdir_all", "目录", "ok"),
        ("write_file", "目录/file", "ok"),
        ("exec", "echo", "ok"),
        ("exec", "perl", "not_found"),
        ("remove", "目录/file", "ok"),
        ("remove", "目录/file", "not_found"),
    ]
    .map(|(action, what, outcome)| {
        (action.to_owned(), what.to_owned(), outcome.to_owned(), "engine".to_owned())
    });
    let mut log = String::new();
    for file in fs::read_dir(host.root.join(".filesecbox/audit")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            log.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_user = records.filter(|record| record["user"] == "audited" && record["action"] != "run ended");
    let found: Vec<_> = of_user
        .map(|record| {
            let what = if record["program"].is_null() {
                text(&record["paths"][0])
            } else {
                text(&record["program"])
            };
            assert_eq!(record["tree"], "sandbox/audited/demo");
            (text(&record["action"]), what, text(&record["outcome"]), text(&record["role"]))
        })
        .collect();
    assert_eq!(found, expected);
    assert!(!log.contains("not to be recorded") && !log.contains("nor this"));
}

async fn reading_is_a_use_of_the_workspace(host: Arc<Host>) {
    let used = user("used");
    let id = WorkspaceId { user: used.clone(), agent: AgentId::parse("demo").unwrap() };
    assert!(!host.service.store().workspaces().is_noted(&id));
    host.sandbox().await.read_dir(&used, &path("/workspace")).await.unwrap();
    assert!(host.service.store().workspaces().is_noted(&id));
}

/// More pieces than are collected before they are written.
async fn a_file_of_tiny_pieces_is_whole(host: Arc<Host>) {
    let (sandbox, tiny, file) = (host.sandbox().await, user("tiny"), path("/workspace/file"));
    let bytes: Vec<u8> = (0..10_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let pieces: Vec<_> = bytes.iter().map(|byte| Ok(vec![*byte].into())).collect();
    let body = Box::pin(futures_util::stream::iter(pieces));
    sandbox.write_file(&tiny, &file, body, sandbox::WriteOptions::default()).await.unwrap();
    assert_eq!(sandbox.read(&tiny, &file).await.unwrap(), bytes);
}

fn named(host: &Host, tree: &TreeId) -> usize {
    host.service.named_runs().iter().filter(|run| run.tree == *tree).count()
}

async fn a_command_leaves_no_name_behind(host: Arc<Host>) {
    let (sandbox, forgotten) = (host.sandbox().await, user("forgotten"));
    let tree = TreeId::Workspace(forgotten.clone(), AgentId::parse("demo").unwrap());
    sandbox.exec(&forgotten, ExecSpec::shell("echo done")).await.unwrap();
    assert_eq!(named(&host, &tree), 0);

    let mark = path("/workspace/begun");
    let running = sandbox.exec(&forgotten, ExecSpec::shell("echo > begun; sleep 300"));
    let begun = async {
        while !sandbox.exists(&forgotten, &mark).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(named(&host, &tree), 1);
    };
    tokio::select! {
        ended = running => panic!("it ended: {ended:?}"),
        () = begun => {}
    }
    assert_eq!(named(&host, &tree), 0);
    let id = WorkspaceId::of(&tree);
    let begin = Instant::now();
    while host.service.runs_under_way(&id) != (0, 0) {
        assert!(begin.elapsed() < PATIENCE, "the command goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
