//! One user publishes a skill, another finds and installs it.
//!
//! `cargo run -p agent --example registry`
#![allow(clippy::print_stdout, missing_docs, reason = "an example speaks")]

use std::error::Error;
use std::sync::Arc;

use agent::Place;
use agent::catalogue::system_clock;
use agent::registry::{Kind, Registry, Sharing};
use sandbox::{MemSandbox, NoneOptions, NoneSandbox, Root, Sandbox, SandboxExt, UserId};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let ours = NoneSandbox::open(NoneOptions {
        sync: true,
        ..NoneOptions::new(Root::Shared(directory.path().into()))
    })?;
    let ours = Place::in_workspace(Arc::new(ours), UserId::parse("server")?, "").await?;
    let users: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
    let registry = Registry::open(ours, Arc::clone(&users), system_clock()).await?;

    let (author, reader) = (UserId::parse("作者")?, UserId::parse("读者")?);
    let skill = users.workspace(&author).await?.join("skills/写作")?;
    users.mkdir_all(&author, &skill, 0o755).await?;
    users
        .write(&author, &skill.join("SKILL.md")?, "---\nname: 写作\ndescription: Writes well.\n---\n".into())
        .await?;

    let entry = registry.publish(&author, Kind::Skill, "写作", "text writing", Sharing::Public).await?;
    println!("published {} {} as number {}", entry.kind, entry.name, entry.id);
    for found in registry.search("writ").await {
        registry.install(&reader, found.id).await?;
        println!("{} has {:?}", reader.as_str(), registry.mine(&reader).await?.installed);
    }
    Ok(())
}
