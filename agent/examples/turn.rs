//! A model's turn, without the model: what it is offered, what it calls, and what it reads.
//!
//! `cargo run -p agent --example turn`
#![allow(clippy::print_stdout, missing_docs, reason = "an example speaks")]

use std::error::Error;
use std::sync::Arc;

use agent::Place;
use agent::catalogue::{Forget, SkillStore, Watched, system_clock};
use agent::offload::{Call, OffloadOptions, OffloadStore, Recall, session_key};
use agent::tools::{Context, Session, Toolbox};
use sandbox::{NoneOptions, NoneSandbox, Root, Sandbox, UserId};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // A sandbox: this host. `ServiceSandbox` takes its place where commands need walls.
    let directory = tempfile::tempdir()?;
    let users = NoneSandbox::open(NoneOptions::new(Root::PerUser(directory.path().join("users"))))?;
    let users: Arc<dyn Sandbox> = Arc::new(users);
    let skills = Arc::new(SkillStore::new(Vec::new(), Arc::clone(&users), system_clock()));
    let sandbox: Arc<dyn Sandbox> = Arc::new(Watched::new(users, [Arc::clone(&skills) as Arc<dyn Forget>]));

    // Where long results are kept: a directory of ours.
    let ours = NoneOptions { sync: true, ..NoneOptions::new(Root::Shared(directory.path().join("kept"))) };
    let ours = Place::in_workspace(Arc::new(NoneSandbox::open(ours)?), UserId::parse("server")?, "").await?;
    let kept = Arc::new(OffloadStore::new(ours, system_clock(), OffloadOptions::default()));

    // A conversation: its user and its tools.
    let user = UserId::parse("小明")?;
    let conversation = session_key("cli", "1");
    let session = Session::open(&*sandbox, user.clone()).await?;
    let toolbox = Toolbox::standard().with(Recall::new(Arc::clone(&kept), &conversation));
    println!("{} tools are offered", toolbox.schemas().as_array().map_or(0, Vec::len));

    // What a model would call.
    let calls = [
        (
            "Edit",
            json!({ "path": "skills/问候/SKILL.md", "mode": "create", "content": "---\nname: 问候\ndescription: Greets.\n---\nSay hello.\n" }),
        ),
        ("Edit", json!({ "path": "notes.txt", "mode": "create", "content": "一行\n".repeat(5_000) })),
        (
            "Edit",
            json!({ "path": "notes.txt", "mode": "line", "action": "replace", "line_number": 2, "content": "two" }),
        ),
        ("Grep", json!({ "pattern": "^t.o$" })),
        ("Shell", json!({ "command": "wc -l notes.txt" })),
        ("Skill", json!({ "name": "问候" })),
        ("Read", json!({ "path": "notes.txt" })),
        ("Read", json!({ "path": "../../etc/passwd" })),
    ];
    for (tool, arguments) in calls {
        let arguments = arguments.to_string();
        let output = toolbox.call(&Context::new(&*sandbox, &session), tool, &arguments).await;
        let read_path = session.resolve("notes.txt").ok().filter(|_| tool == "Read");
        let call = Call { tool, arguments: &arguments, result: &output.text, read_path: read_path.as_ref() };
        let text = match kept.maybe_offload(&*sandbox, &user, &conversation, call).await? {
            Some((_, summary)) => summary,
            None => output.text,
        };
        println!("\n{tool}: {}", text.chars().take(300).collect::<String>());
    }

    // What stands in the next prompt.
    println!("\n{}", skills.catalogue(&user).await?);
    Ok(())
}
