//! Preparing from the command line, from the agent's client, and of a workspace that another backend answers for.

use std::process::Output;

use futures_util::{StreamExt, stream};
use policy::{AgentId, UserId, VersionId};
use sandbox::{
    ErrorKind, PrepareRequest, Sandbox, SelectedVersion, SentFile, ServiceOptions, ServiceSandbox,
};
use serde_json::Value;

use crate::fixture::version;
use crate::support::{Entry, Service, run_program, workspace, zip};

const SKILL: &str = "---\nname: writer\ndescription: writes\n---\n";

fn call(service: &Service, args: &[&str]) -> Output {
    let server = format!("http://{}", service.client.address);
    run_program(args, &[("FILESECBOX_SERVER", server.as_str())])
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_command_line_puts_and_gets_packages_and_prepares() {
    let service = Service::start();
    let v1 = version(1);
    let archive = service.outside().join("writer.zip");
    let bytes = zip(&[Entry::file("SKILL.md", SKILL), Entry::file("entrypoint.sh", "echo set up")]);
    std::fs::write(&archive, &bytes).unwrap();
    let script = service.outside().join("setup.sh");
    std::fs::write(&script, "cat user_files/setup.sh | wc -l").unwrap();
    let (archive, script) = (archive.to_str().unwrap(), script.to_str().unwrap());
    let kept = said(&call(&service, &["package", "put", &v1, archive]));
    assert_eq!(kept, format!("The package of the version '{v1}' is kept\n"));
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = call(&service, &["package", "put", &v1, archive, "--digest", &wrong]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("(invalid)"));
    let copy = service.outside().join("copy");
    said(&call(&service, &["package", "get", &v1, "--output", copy.to_str().unwrap()]));
    assert_eq!(std::fs::read(&copy).unwrap(), bytes);
    let skill = format!("writer={v1}");
    let args =
        ["prepare", "-u", "alice", "-a", "demo", "--skill", &skill, "--entrypoint", script, "--file", script];
    let told = said(&call(&service, &args));
    for line in ["deploy: done (", "files: done (", "    0", "    set up", "skill writer: /", "ready in /"] {
        assert!(told.lines().any(|told| told.starts_with(line)), "{line}: {told}");
    }
    let again: Value =
        serde_json::from_str(&said(&call(&service, &[&args[..], &["--json"]].concat()))).unwrap();
    assert_eq!(again["skills"][0]["name"], "writer");
}

/// What a command shows on a terminal of its own.
fn shown(service: &Service, args: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let other_end = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut command = crate::support::program();
    let started = command
        .args(args)
        .env("FILESECBOX_SERVER", format!("http://{}", service.client.address))
        .env("TERM", "xterm")
        .stdout(std::process::Stdio::null())
        .stderr(other_end)
        .spawn();
    drop(command);
    let mut child = started.unwrap();
    let (mut shown, mut master) = (Vec::new(), std::fs::File::from(terminal));
    // A terminal that no process holds any more ends with an error (pty(7)).
    let _ended = std::io::Read::read_to_end(&mut master, &mut shown);
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap()
}

#[test]
fn on_a_terminal_a_bar_shows_the_step_under_way_and_how_many_have_ended() {
    let service = Service::start();
    let v1 = version(1);
    let bytes = zip(&[Entry::file("SKILL.md", SKILL), Entry::file("entrypoint.sh", "sleep 0.6")]);
    service.client.put(format!("/v1/packages/{v1}"), bytes).ok();
    let script = service.outside().join("setup.sh");
    std::fs::write(&script, "sleep 0.6").unwrap();
    let (script, skill) = (script.to_str().unwrap(), format!("writer={v1}"));
    let round = ["prepare", "-u", "alice", "-a", "demo", "--entrypoint", script, "--file", script];
    let bar = shown(&service, &[&round[..], &["--skill", &skill]].concat());
    for step in ["2/5 entrypoint", &format!("3/5 skill:{v1}")] {
        assert!(bar.contains(step), "{step}: {bar:?}");
    }
    std::fs::write(script, "sleep 0.7").unwrap();
    let bar = shown(&service, &[&round[..], &["--mode", "tool-call"]].concat());
    assert!(bar.contains("1/2 entrypoint"), "{bar:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_client_puts_packages_and_prepares() {
    let service = Service::start();
    let client = ServiceSandbox::new(ServiceOptions {
        address: format!("http://{}", service.client.address),
        authorities: None,
        token: None,
        agent: AgentId::parse("demo").unwrap(),
        skills: false,
    });
    let client = client.unwrap();
    let alice = UserId::parse("爱丽").unwrap();
    let v1 = VersionId::parse(&version(1)).unwrap();
    let archive = |text: &str| {
        let bytes = zip(&[Entry::file("SKILL.md", text)]);
        stream::once(async { Ok(bytes.into()) }).boxed()
    };
    client.put_package(&v1, archive(SKILL)).await.unwrap();
    client.put_package(&v1, archive(SKILL)).await.unwrap();
    let refused = client.put_package(&v1, archive("other")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    let request = PrepareRequest {
        skills: vec![SelectedVersion { skill_id: "writer".to_owned(), version_id: version(1) }],
        entrypoint: "cat user_files/a".to_owned(),
        files: vec![SentFile { name: "a".to_owned(), bytes: "from the client".into() }],
        ..PrepareRequest::default()
    };
    let ready = client.prepare(&alice, &request).await.unwrap();
    assert_eq!(ready.skills[0].version_id.as_deref(), Some(v1.as_str()));
    let entrypoint = ready.steps.iter().find(|step| step.name == "entrypoint").unwrap();
    assert_eq!((entrypoint.outcome.as_str(), entrypoint.log.as_str()), ("done", "from the client"));
    let path = ready.skills[0].skill_md_path.clone();
    let told = client.exec(&alice, sandbox::ExecSpec::shell(format!("cat '{path}'"))).await.unwrap();
    assert_eq!(told.stdout, SKILL);
    let tree = workspace("爱丽", "demo");
    assert_eq!(service.client.text(&tree, "user_files/a"), "from the client");
}
