//! Programs that the host replaces or installs while the service runs: commands get them without a restart.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Reply, Service, granted, is_root, workspace};

/// The program, which no host has.
const TOOL: &str = "tool-of-this-test";

/// A directory of the host in which programs are looked for. Programs in its temporary directory are none.
struct Programs(tempfile::TempDir);

impl Programs {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/opt").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(directory)
    }

    /// Installs the program as package managers do: another file takes the place of the one before.
    fn install(&self, says: &str) {
        let draft = self.0.path().join("draft");
        fs::write(&draft, format!("#!/bin/sh\necho {says}\n")).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&draft, self.0.path().join(TOOL)).unwrap();
    }
}

/// Who allows the program.
#[derive(Clone, Copy, Debug)]
enum Allows {
    /// The configuration, for every agent.
    Configuration,
    /// The policy of the agent.
    Policy,
}

/// How the program is started.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// By the caller.
    Direct,
    /// By a line for the shell.
    Line,
}

/// A service with the directory, of which a caller starts the program.
struct Caller {
    service: Service,
    start: Start,
}

impl Caller {
    fn ask(&self) -> Reply {
        let spec = match self.start {
            Start::Direct => json!({ "command": TOOL }),
            Start::Line => json!({ "shell": format!("{TOOL}; exit $?") }),
        };
        self.service.client.post_json(format!("{}/exec", workspace("u", "a")), &spec)
    }

    fn runs(&self) -> Value {
        let answer = self.ask().ok();
        json!([answer["data"]["exit_code"], answer["data"]["stdout"], answer["data"]["hint"]])
    }

    /// The run that meets the change is told to be repeated.
    fn is_told_to_repeat(&self) {
        let reply = self.ask();
        let told = match self.start {
            Start::Direct => reply.refused(409, "conflict")["data"].clone(),
            Start::Line => reply.ok()["data"]["hint"].clone(),
        };
        assert!(told.as_str().unwrap().contains("repeat the command"), "{told}");
        self.service.client.get("/readyz").ok();
    }

    fn lists(&self) -> bool {
        let info = self.service.client.get(format!("{}/info", workspace("u", "a"))).ok();
        info["data"]["commands"].as_array().unwrap().contains(&json!(TOOL))
    }
}

/// Does `law` at each tier, however the program is allowed and started, each time with a service of its own, which starts after
/// `before`: a service looks for programs once a second at most.
fn in_every_way(programs: &Programs, before: impl Fn(), law: impl Fn(&Caller, &str)) {
    for tier in ["namespaces", "landlock"] {
        for allows in [Allows::Configuration, Allows::Policy] {
            for start in [Start::Direct, Start::Line] {
                let extra = match allows {
                    Allows::Configuration => TOOL,
                    Allows::Policy => "none-such",
                };
                before();
                let service = Service::configured(&format!(
                    "[isolation]\nmaximum = \"{tier}\"\n[commands]\nextra = [\"{extra}\"]\n\
                     search_path = [\"{}\", \"/usr/local/bin\", \"/usr/bin\", \"/bin\"]\n",
                    programs.0.path().display()
                ));
                let info = service.client.get("/v1/info").ok();
                if !granted(tier, info["data"]["host"]["enforcement"]["tier"] == tier) {
                    continue;
                }
                if let Allows::Policy = allows {
                    let policy = json!({ "extra": [TOOL] });
                    service.client.put("/v1/agents/a/policy", policy.to_string()).ok();
                }
                law(&Caller { service, start }, &format!("{tier} {allows:?} {start:?}"));
            }
        }
    }
}

#[test]
fn a_program_that_the_host_replaces_is_the_new_one_from_the_second_run_on() {
    if !is_root() {
        return;
    }
    let programs = Programs::new();
    let before = || programs.install("old");
    in_every_way(&programs, before, |caller, way| {
        assert_eq!(caller.runs(), json!([0, "old\n", null]), "{way}");
        programs.install("new");
        caller.is_told_to_repeat();
        assert_eq!(caller.runs(), json!([0, "new\n", null]), "{way}");
    });
}

#[test]
fn a_program_that_is_installed_after_the_start_runs_and_is_listed() {
    if !is_root() {
        return;
    }
    let programs = Programs::new();
    let before = || drop(fs::remove_file(programs.0.path().join(TOOL)));
    in_every_way(&programs, before, |caller, way| {
        assert!(!caller.lists(), "{way}");
        programs.install("installed");
        if let Start::Line = caller.start {
            caller.is_told_to_repeat();
        }
        assert_eq!(caller.runs(), json!([0, "installed\n", null]), "{way}");
        assert!(caller.lists(), "{way}");
    });
}
