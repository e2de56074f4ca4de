//! The contract of all backends over the wire: [`RemoteSandbox`] on one side, the runner's [`Session`] on the other, in memory. Each law is
//! a test of its own: `exact::LAW` between equals, `founding::LAW` with a runner that is taken for one of the first generation, and
//! `process::LAW` with runners as they are: processes, over sockets, with confined commands; `rough::LAW` the same on a way that is slow,
//! splits frames and is cut at random.
//!
//! A law that a founding runner cannot be held to is named in [`LOST`], with the reason.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by panicking, and says what it skipped"
)]

mod process;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use libtest_mimic::{Arguments, Trial};
use runner::{Runs, Session};
use sandbox::conformance::{Ability, Subject, Verdict, check, laws};
use sandbox::wire::{Feature, Register};
use sandbox::{Link, NoneOptions, NoneSandbox, RemoteSandbox, Root, Sandbox, UserId};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

/// Users of the contract.
const USERS: [&str; 2] = ["alice", "bob"];

/// What the founding wire cannot carry.
const LOST: [(&str, &str); 12] = [
    ("replacing_with_bits_sets_them", "a file that is there keeps its bits"),
    ("a_file_closed_by_its_bits_is_denied", "no bits at all mean the usual ones"),
    ("create_replaces_no_link", "a link is told as a file"),
    ("a_link_inside_is_written_through", "a link is told as a file"),
    ("a_listing_shows_links_as_links", "a link is told as a file"),
    ("a_walk_follows_no_link", "a link is told as a file"),
    ("a_pipe_is_neither_file_nor_directory", "a pipe is told as a file"),
    ("bytes_that_are_no_text_come", "output is text"),
    ("more_than_the_usual_bound_can_be_asked_for", "no bound is sent"),
    ("a_signal_is_told", "no signal is told"),
    ("of_many_creators_one_succeeds", "making a file is two steps"),
    ("a_dropped_call_kills_the_command", "a request cannot be given up"),
];

struct Wire {
    abilities: Vec<Ability>,
    features: Vec<Feature>,
    is_rough: bool,
    /// The runners, when they are processes.
    processes: Mutex<Option<Vec<Child>>>,
    sandbox: Arc<dyn Sandbox>,
    root: TempDir,
}

impl Wire {
    async fn new(name: &str) -> Self {
        let features =
            if name == "founding" { Vec::new() } else { vec![Feature::Exact, Feature::Live, Feature::Swap] };
        use Ability::{Changes, Closing, Commands, Huge, Links, Live, Modes, Pipes, Versions, Walls};
        let mut abilities = vec![Changes, Closing, Commands, Links, Pipes, Walls];
        // 500 MiB as base64 take a minute where nothing is optimised.
        let is_patient = !cfg!(debug_assertions) || std::env::var_os("FILESECBOX_LARGE").is_some();
        if features.contains(&Feature::Exact) && is_patient {
            abilities.push(Huge);
        }
        if features.contains(&Feature::Live) {
            abilities.push(Live);
        }
        if features.contains(&Feature::Swap) {
            abilities.push(Versions);
        }
        if !rustix::process::geteuid().is_root() {
            abilities.push(Modes);
        }
        let root = tempfile::tempdir().unwrap();
        let users = root.path().join("users");
        let is_rough = name == "rough";
        if is_rough {
            // Half a gigabyte does not fit between two cuts at that pace.
            abilities.retain(|ability| *ability != Huge);
        }
        let (sandbox, processes) = if name == "process" || is_rough {
            let (sandbox, processes) = process::connected(&users, &USERS, is_rough).await;
            (sandbox, Some(processes))
        } else {
            (connected(&features, NoneOptions::new(Root::PerUser(users))).await, None)
        };
        Self { abilities, features, is_rough, processes: Mutex::new(processes), sandbox, root }
    }
}

/// A backend whose users each have a runner over `options`.
async fn connected(features: &[Feature], options: NoneOptions) -> Arc<dyn Sandbox> {
    let machine: Arc<dyn Sandbox> = Arc::new(NoneSandbox::open(options).unwrap());
    let remote = Arc::new(RemoteSandbox::new());
    for name in USERS {
        let user = UserId::parse(name).unwrap();
        let workspace = machine.workspace(&user).await.unwrap();
        let register = Register {
            user_id: name.to_owned(),
            workspace: workspace.to_string(),
            shell: "/bin/sh".to_owned(),
            ..Register::default()
        };
        let (link, mut asked) = Link::new(user.clone(), &register, features).unwrap();
        let (answers, mut answered) = mpsc::channel(4);
        let session = Session::new(Runs::new(machine.clone(), user), workspace, features, answers);
        remote.attach(Arc::clone(&link));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    frame = asked.recv() => match frame {
                        Some(frame) => session.receive(&frame.text).await,
                        None => return,
                    },
                    Some(text) = answered.recv() => link.receive(&text),
                }
            }
        });
    }
    remote
}

#[async_trait]
impl Subject for Wire {
    fn abilities(&self) -> &[Ability] {
        &self.abilities
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.sandbox.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        let place = tempfile::tempdir_in(self.root.path()).unwrap().keep();
        if self.processes.lock().unwrap().is_some() {
            let (sandbox, more) = process::connected(&place, &USERS, self.is_rough).await;
            self.processes.lock().unwrap().get_or_insert_default().extend(more);
            return sandbox;
        }
        connected(&self.features, NoneOptions::new(Root::PerUser(place))).await
    }
}

fn main() {
    // First, because it may end this process, which would leave the runners behind.
    let arguments = Arguments::from_args();
    let runtime = Arc::new(Builder::new_multi_thread().enable_all().build().unwrap());
    let counts = Arc::new(Mutex::new(BTreeMap::<&str, (usize, usize)>::new()));
    let mut trials = Vec::new();
    for name in ["exact", "founding", "process", "rough"] {
        let subject: Arc<dyn Subject> = Arc::new(runtime.block_on(Wire::new(name)));
        for law in laws() {
            if name == "founding" && LOST.iter().any(|(lost, _)| *lost == law.name) {
                continue;
            }
            let (runtime, subject, counts) = (runtime.clone(), subject.clone(), counts.clone());
            trials.push(Trial::test(format!("{name}::{}", law.name), move || {
                let verdict = runtime.block_on(check(&subject, law));
                let mut counts = counts.lock().unwrap();
                let (held, skipped) = counts.entry(name).or_default();
                match verdict {
                    Verdict::Holds => *held += 1,
                    Verdict::Skipped(need) => {
                        *skipped += 1;
                        println!("SKIPPED: {name}::{}: this backend lacks {need:?}", law.name);
                    }
                }
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (name, (held, skipped)) in counts.lock().unwrap().iter() {
        println!("{name}: {held} laws hold, {skipped} skipped");
    }
    println!("rough: the way was cut {} times", process::CUTS.load(std::sync::atomic::Ordering::Relaxed));
    for (law, reason) in LOST {
        println!("LOST with founding runners: {law}: {reason}");
    }
    conclusion.exit();
}
