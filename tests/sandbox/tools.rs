//! The tools over a running service: the transcript, and by what they search there.

use std::sync::Arc;

use agent::tools::{Context, Search, Session, Toolbox};
use libtest_mimic::Trial;
use sandbox::conformance::Subject;
use sandbox::{Sandbox, SandboxExt, UserId};
use tokio::runtime::Runtime;

use crate::play::play;
use crate::remote::Remote;
use crate::tapped::Tapped;

pub(crate) fn trials(runtime: &Arc<Runtime>, remote: &Arc<Remote>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (user, search) in [("programs", Search::Programs), ("files", Search::Files)] {
        let (runtime, remote) = (runtime.clone(), remote.clone());
        trials.push(Trial::test(format!("service::the_tools_answer_as_in_memory_by_{user}"), move || {
            let sandbox = runtime.block_on(remote.sandbox());
            let user = UserId::parse(user).unwrap();
            println!("{:?}", runtime.block_on(play(&*sandbox, &user, search, true)));
            Ok(())
        }));
    }
    let (another, host) = (runtime.clone(), remote.clone());
    trials.push(Trial::test("service::a_variable_that_is_not_let_in_does_not_end_the_session", move || {
        another.block_on(refused_variable(&host));
        Ok(())
    }));
    let (runtime, remote) = (runtime.clone(), remote.clone());
    trials.push(Trial::test("service::programs_of_the_service_search_for_the_tools", move || {
        runtime.block_on(by_programs(&remote));
        Ok(())
    }));
    trials
}

/// The service's list of commands and its look at arguments let these through; else every directory would be a request.
async fn by_programs(remote: &Remote) {
    let tapped = Tapped::new(remote.sandbox().await);
    let user = UserId::parse("searching").unwrap();
    let session = Session::open(&tapped, user.clone()).await.unwrap();
    let directory = session.workspace().join("源/a b").unwrap();
    tapped.mkdir_all(&user, &directory, 0o755).await.unwrap();
    tapped
        .write(&user, &directory.join("it's.rs").unwrap(), "fn main() {} // /etc/../x\n".into())
        .await
        .unwrap();
    let (context, toolbox) = (Context::new(&tapped, &session), Toolbox::standard());
    for (tool, arguments) in [
        ("Glob", r#"{"pattern": "**/*.rs"}"#),
        ("Glob", r#"{"pattern": "**/a b/*'s.rs"}"#),
        ("Glob", r#"{"pattern": "*/*/*"}"#),
        ("Grep", r#"{"pattern": "fn \\w+"}"#),
        ("Grep", r#"{"pattern": "/etc/\\.\\./x"}"#),
        ("Grep", r#"{"pattern": "\\(\\)"}"#),
    ] {
        let output = toolbox.call(&context, tool, arguments).await;
        assert!(output.text.contains("源/a b/it's.rs"), "{arguments}: {}", output.text);
        assert_eq!(tapped.calls("read_dir"), 0, "{tool} {arguments} was answered by directories");
    }
    assert!(tapped.calls("exec") >= 6);
}

async fn refused_variable(remote: &Remote) {
    let sandbox = remote.sandbox().await;
    let session = Session::open(&*sandbox, UserId::parse("exporting").unwrap()).await.unwrap();
    let (context, toolbox) = (Context::new(&*sandbox, &session), Toolbox::standard());
    let shell = async |command: &str| {
        let arguments = format!("{{\"command\": \"{command}\"}}");
        toolbox.call(&context, "Shell", &arguments).await
    };
    assert_eq!(shell("export SECRET_X=1").await.text, "Command executed successfully (no output)");
    let output = shell("echo still here").await;
    assert!(
        !output.is_error && output.text.starts_with("(exported variables were forgotten: "),
        "{}",
        output.text
    );
    assert!(output.text.ends_with(")\nstill here"), "{}", output.text);
    assert_eq!(shell("echo and here").await.text, "and here");
}
