//! The service in the process of an engine: `cargo run --example local`.
#![allow(clippy::print_stdout, missing_docs, reason = "an example speaks")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use filesecbox::config::Config;
use filesecbox::local::LocalSandbox;
use filesecbox::serve;
use sandbox::{AgentId, ExecSpec, Sandbox, SandboxExt, UserId};

fn main() -> ExitCode {
    // Commands are started by this very program, under a hidden name.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == exec::SUBCOMMAND) {
        return exec::launcher_main();
    }
    match engine() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn engine() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let config = Config { root: dir.path().join("data"), ..Config::default() };
    // Before any thread is started: the process moves to where it may mount.
    let service = serve::start(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        serve::tend(&service);
        let sandbox = LocalSandbox::new(Arc::clone(&service), AgentId::parse("demo")?, true);
        let done = turn(&sandbox).await;
        serve::stop(&service, Duration::from_secs(8)).await;
        done
    });
    // In this order: what is closed last waits for nothing.
    drop(runtime);
    serve::close(&service);
    done
}

async fn turn(sandbox: &dyn Sandbox) -> Result<(), Box<dyn Error>> {
    let alice = UserId::parse("alice")?;
    let note = sandbox.workspace(&alice).await?.join("note.txt")?;
    sandbox.write(&alice, &note, "seven\n".into()).await?;
    let result = sandbox.exec(&alice, ExecSpec::argv("cat", ["note.txt"])).await?;
    println!("{}", result.stdout_text());
    Ok(())
}
