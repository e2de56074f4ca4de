//! Many views touched by one service: what it holds is bounded by `limits.views`, not by what was ever touched.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::host::{self, Held};
use crate::random;
use crate::service::Service;
use crate::skill;

/// Idle views that the service may hold.
const VIEWS: usize = 64;
/// Views that may wait to be closed besides, with those that are being closed.
const CLOSING: usize = 64 + 16;
/// Commands at once.
const CLIENTS: usize = 16;
/// Skills of the agent; there are as many users as it takes.
const SKILLS: usize = 50;
/// Descriptors of a view: its mount, its lower directory, its directory, its lease.
const PER_VIEW: usize = 4;
/// Descriptors that are kept besides for the next runs, however many views there are: Landlock rulesets, and user
/// namespaces of owners.
const KEPT: usize = 128 + 256;
/// Descriptors of a command at most: what it is attached to twice, its pipes and its socket, its connection.
const PER_RUN: usize = 32;
/// Views after which the service is warm: its caches and its threads are what they will be.
const WARM: usize = 400;
/// By how much a warm service may grow, in KiB; less than a view costs that is forgotten but not freed, times 10 000.
const GROWTH_KIB: usize = 8 * 1024;

/// The resources of service, launcher and data directory at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    service: Held,
    launcher: Held,
    /// Directories below `views/`.
    views: usize,
}

impl Moment {
    fn of(service: &Service, root: &Path) -> Self {
        Self {
            service: Held::by(service.pid()),
            launcher: Held::by(service.launcher()),
            views: host::entries(root.join(".filesecbox/views")),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            service: self.service.max(other.service),
            launcher: self.launcher.max(other.launcher),
            views: self.views.max(other.views),
        }
    }
}

#[test]
fn views_of_many_users_and_skills_cost_no_more_than_those_that_are_held() {
    let views = random::setting("FILESECBOX_LOAD_VIEWS", 1_000).max(2 * WARM);
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    let settings = format!("[limits]\nviews = {VIEWS}\n");
    let service = Service::start_configured(&settings, &root, &temp.path().join("log"));
    let client = Client::new(&service.url);
    if !host::has_namespaces(&client) {
        return;
    }
    let skills: Vec<String> = (0..SKILLS).map(|number| format!("skill-{number}")).collect();
    let names: Vec<&str> = skills.iter().map(String::as_str).collect();
    assert!(client.upload("user-0/agent", "baseline", &skill::archive(&names, 1)).unwrap().is_success());
    let began = Moment::of(&service, &root);
    let started = Instant::now();

    touch(&service, 0..WARM, &root);
    let warm = at_rest(&service, &root, &began);
    let most = touch(&service, WARM..views, &root);
    let took = started.elapsed();
    let ended = at_rest(&service, &root, &began);

    random::tell(&format!("views: {views} in {:.1} s; at first {began:?}", took.as_secs_f64()));
    random::tell(&format!("views: warm {warm:?}"));
    random::tell(&format!("views: most {most:?}"));
    random::tell(&format!("views: in the end {ended:?}"));
    let live = VIEWS + CLOSING + 2 * CLIENTS;
    assert!(most.views <= live, "{most:?}");
    let rest = began.service.descriptors + KEPT;
    assert!(most.service.descriptors <= rest + live * PER_VIEW + CLIENTS * PER_RUN, "{most:?}");
    assert!(most.launcher.descriptors <= began.launcher.descriptors + CLIENTS * PER_RUN, "{most:?}");
    // Kernels that clone no detached mounts attach each view once.
    assert!(most.service.mounts <= began.service.mounts + 2 * live, "{most:?}");
    assert_eq!(most.launcher.mounts, began.launcher.mounts, "a run left a mount in the launcher");
    assert!(ended.service.descriptors <= rest + VIEWS * PER_VIEW + PER_RUN, "{ended:?}");
    assert!(ended.service.resident_kib <= warm.service.resident_kib + GROWTH_KIB, "{ended:?}");
    assert!(ended.launcher.resident_kib <= warm.launcher.resident_kib + GROWTH_KIB / 8, "{ended:?}");

    service.stop();
    let service = Service::start_configured(&settings, &root, &temp.path().join("log"));
    assert_eq!(host::entries(root.join(".filesecbox/views")), 0, "the next start leaves views");
    assert_eq!(overlays(&root), 0, "no client changed anything, but overlays stay");
    drop(service);
}

/// Runs a command in the views of these numbers, each once; what was held at most meanwhile.
fn touch(service: &Service, views: std::ops::Range<usize>, root: &Path) -> Moment {
    let next = AtomicUsize::new(views.start);
    thread::scope(|scope| {
        let crew: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let client = Client::new(&service.url);
                    loop {
                        let view = next.fetch_add(1, Ordering::Relaxed);
                        if view >= views.end {
                            return;
                        }
                        let (user, skill) = (view / SKILLS, view % SKILLS);
                        let target = format!("/v1/skills/user-{user}/agent/skill-{skill}/exec");
                        let ran =
                            client.post(&target, &json!({ "command": "cat", "args": ["head.txt"] })).unwrap();
                        assert_eq!(ran.status, 200, "view {view}: {}", ran.text());
                        let stdout = ran.json()["data"]["stdout"].as_str().unwrap().to_owned();
                        assert_eq!(skill::mark_of("head.txt", stdout.as_bytes()), "1");
                    }
                })
            })
            .collect();
        let mut most = Moment::default();
        while !crew.iter().all(thread::ScopedJoinHandle::is_finished) {
            most = most.max(Moment::of(service, root));
            thread::sleep(Duration::from_millis(50));
        }
        most
    })
}

/// The resources held once everything that was let go has gone, also what the launcher lets go after a run's answer.
fn at_rest(service: &Service, root: &Path, began: &Moment) -> Moment {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let moment = Moment::of(service, root);
        let over = overlays(root);
        if moment.views <= VIEWS && over <= VIEWS && moment.launcher.descriptors <= began.launcher.descriptors
        {
            return moment;
        }
        assert!(Instant::now() < deadline, "not let go: {moment:?}, {over} overlays; at first {began:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Overlays on disk: all are there for the sake of a view, because no client changes anything.
fn overlays(root: &Path) -> usize {
    let users = std::fs::read_dir(root.join("skill/overlay")).into_iter().flatten().flatten();
    users.map(|user| host::entries(user.path().join("agent"))).sum()
}
