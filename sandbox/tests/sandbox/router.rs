//! The router: which user runs on which backend, against recorded cases, and what a session can ask for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sandbox::{
    Backends, Choice, ErrorKind, MemSandbox, NoneOptions, NoneSandbox, Result, Root, Runners, Sandbox,
    SandboxExt, SandboxRouter, UserId,
};
use serde_json::Value;

/// Machines that are connected, by user and name; the first of a user is the one the user works with.
#[derive(Debug, Default)]
struct Machines(Mutex<HashMap<(UserId, String), Arc<dyn Sandbox>>>);

impl Machines {
    fn connect(&self, user: &UserId, name: &str) -> Arc<dyn Sandbox> {
        let machine: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
        self.0.lock().unwrap().insert((user.clone(), name.to_owned()), machine.clone());
        machine
    }

    fn disconnect(&self, user: &UserId) {
        self.0.lock().unwrap().retain(|(of, _), _| of != user);
    }
}

#[async_trait]
impl Runners for Machines {
    fn of(&self, user: &UserId, name: Option<&str>) -> Option<Arc<dyn Sandbox>> {
        let machines = self.0.lock().unwrap();
        let key = (user.clone(), name.unwrap_or("default").to_owned());
        machines.get(&key).cloned()
    }

    async fn close(&self) -> Result<()> {
        self.0.lock().unwrap().clear();
        Ok(())
    }
}

struct Scene {
    machines: Arc<Machines>,
    docker: Arc<dyn Sandbox>,
    none: Arc<dyn Sandbox>,
    _root: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let none = NoneSandbox::open(NoneOptions::new(Root::PerUser(root.path().to_owned()))).unwrap();
        Self {
            machines: Arc::default(),
            docker: Arc::new(MemSandbox::new()),
            none: Arc::new(none),
            _root: root,
        }
    }

    fn router(&self, backends: &[&str]) -> SandboxRouter {
        let has = |name| backends.contains(&name);
        SandboxRouter::new(Backends {
            runners: has("remote").then(|| self.machines.clone() as Arc<dyn Runners>),
            docker: has("docker").then(|| self.docker.clone()),
            none: has("none").then(|| self.none.clone()),
            is_web: Some(Arc::new(|user: &UserId| user.as_str().starts_with("web-"))),
            web_may_use_none: false,
        })
    }

    /// The kind of backend that a call goes to.
    fn kind(&self, router: &SandboxRouter, user: &str) -> Result<&'static str, ErrorKind> {
        let user = UserId::parse(user).ok();
        let chosen = router.select("test", user.as_ref()).map_err(|error| error.kind())?;
        Ok(if Arc::ptr_eq(&chosen, &self.docker) {
            "docker"
        } else if Arc::ptr_eq(&chosen, &self.none) {
            "none"
        } else {
            "remote"
        })
    }
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|list| list.iter().map(|text| text.as_str().unwrap()).collect()).unwrap_or_default()
}

#[test]
fn each_user_goes_where_the_recorded_cases_go() {
    let cases: Vec<Value> = include_str!("../cases/router.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut tried = 0;
    for case in cases.iter().filter(|case| case["area"] == "router") {
        let (scene, input) = (Scene::new(), &case["input"]);
        let router = scene.router(&texts(&input["backends"]));
        for user in texts(&input["connected"]) {
            scene.machines.connect(&UserId::parse(user).unwrap(), "default");
        }
        if let Some(user) = input["then_disconnect"].as_str() {
            scene.machines.disconnect(&UserId::parse(user).unwrap());
        }
        let user = input["user"].as_str().unwrap();
        assert_eq!(scene.kind(&router, user), Ok(case["expected"].as_str().unwrap()), "{case}");
        tried += 1;
    }
    assert_eq!(tried, 9);
}

#[test]
fn the_name_is_that_of_the_first_kind_of_backend() {
    let scene = Scene::new();
    for backends in [&["remote", "docker", "none"][..], &["remote", "none"]] {
        assert_eq!(scene.router(backends).name(), "remote");
    }
    // Files in memory stand for containers here.
    assert_eq!(scene.router(&["docker", "none"]).name(), scene.docker.name());
    assert_eq!(scene.router(&["none"]).name(), "none");
}

#[test]
fn a_session_gets_the_container_or_the_machine_that_it_asks_for_and_no_other() {
    let scene = Scene::new();
    let alice = UserId::parse("alice").unwrap();
    let router = scene.router(&["remote", "docker", "none"]);
    scene.machines.connect(&alice, "default");
    let laptop = scene.machines.connect(&alice, "laptop");
    assert_eq!(scene.kind(&router, "alice"), Ok("remote"));
    let choose = |text: &str| router.with_choice(text.parse::<Choice>().unwrap());
    assert_eq!(scene.kind(&choose("__docker__"), "alice"), Ok("docker"));
    assert!(Arc::ptr_eq(&choose("laptop").select("test", Some(&alice)).unwrap(), &laptop));
    assert_eq!(scene.kind(&choose("desktop"), "alice"), Err(ErrorKind::Disconnected));
    assert_eq!(scene.kind(&choose("laptop"), "bob"), Err(ErrorKind::Disconnected));
    assert_eq!(scene.kind(&choose(""), "alice"), Ok("remote"));
}

#[test]
fn users_of_the_web_do_not_run_on_this_host_unless_that_is_allowed() {
    let scene = Scene::new();
    assert_eq!(scene.kind(&scene.router(&["none"]), "web-1"), Err(ErrorKind::PermissionDenied));
    assert_eq!(scene.kind(&scene.router(&["docker", "none"]), "web-1"), Ok("docker"));
    assert_eq!(scene.kind(&scene.router(&[]), "alice"), Err(ErrorKind::Disconnected));
    let allowed = SandboxRouter::new(Backends {
        none: Some(scene.none.clone()),
        is_web: Some(Arc::new(|_: &UserId| true)),
        web_may_use_none: true,
        ..Backends::default()
    });
    assert_eq!(scene.kind(&allowed, "web-1"), Ok("none"));
}

#[tokio::test]
async fn files_are_where_the_user_runs_and_closing_closes_all() {
    let scene = Scene::new();
    let alice = UserId::parse("alice").unwrap();
    let router = scene.router(&["remote", "docker", "none"]);
    let path = router.workspace(&alice).await.unwrap().join("file").unwrap();
    router.write(&alice, &path, "in the container".into()).await.unwrap();
    scene.machines.connect(&alice, "default");
    assert!(!router.exists(&alice, &path).await.unwrap());
    router.write(&alice, &path, "on the machine".into()).await.unwrap();
    assert_eq!(scene.docker.read(&alice, &path).await.unwrap(), "in the container");
    router.close_for_user(&alice).await.unwrap();
    router.close().await.unwrap();
    assert_eq!(router.read(&alice, &path).await.unwrap_err().kind(), ErrorKind::Disconnected);
    assert_eq!(scene.none.workspace(&alice).await.unwrap_err().kind(), ErrorKind::Disconnected);
}
