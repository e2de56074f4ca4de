//! One user's requests that hold threads, locks, memory or the processor, while a second user goes on.
//!
//! The second user writes, reads, asks for readiness and runs a command, before the attack and during it. What is judged is
//! that each of these is answered while the attack lasts, and how long the slowest took: ten times what it took alone and
//! two seconds are allowed, which a loaded machine needs; a service that is held up takes until the attack is over.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::attack::Attack;
use crate::client::pace::paced;
use crate::client::{Client, encoded};
use crate::expectation::Finding;
use crate::host::growth;
use crate::scene::{Scene, workspace_of};

const MIB: usize = 1024 * 1024;
/// The files of a download together, unpacked: the default.
const DOWNLOAD_BYTES: u64 = 512 * MIB as u64;
/// One of them at most.
const PACKED_FILE_BYTES: u64 = 32 * MIB as u64;
/// The time that a second user's requests may take beyond ten times their time alone.
const GRACE: Duration = Duration::from_secs(2);
/// How often the second user asks during an attack.
const ROUNDS: usize = 4;
/// Descriptors of the streams that a user may have, and of the bystander's: an instance, and a copy to wait on.
const STREAM_DESCRIPTORS: usize = 2 * (16 + 1);
/// Writes that wait for an abandoned download: more than the service has threads.
const WRITES: usize = 530;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("holding_a_skill_with_a_download_that_nobody_waits_for", abandoning).everywhere().alone(),
    Attack::driven("listing_millions_of_nothing_in_a_search", listing_nothing).everywhere().alone(),
    Attack::driven("sending_ten_large_bodies_at_once", sending_bodies).everywhere().alone(),
    Attack::driven("making_a_thousand_edits_of_a_large_text", editing).everywhere().alone(),
    Attack::driven("patching_a_long_text_with_misplaced_hunks", patching).everywhere().alone(),
    Attack::driven("patching_a_text_of_millions_of_empty_lines", patching_nothing).everywhere().alone(),
    Attack::driven("leaving_streams_of_events_behind", leaving_streams).everywhere().alone(),
];

/// A second user, and how long its requests take when nothing else goes on.
struct Bystander<'a> {
    client: &'a Client,
    tree: String,
    alone: Duration,
}

impl<'a> Bystander<'a> {
    /// The control: all of it works.
    fn new(scene: &'a Scene<'_>) -> Self {
        let tree = workspace_of(&format!("{}-bystander", scene.user));
        let mut bystander = Self { client: scene.client(), tree, alone: Duration::ZERO };
        bystander.alone = (0..3).map(|_| bystander.round()).max().unwrap();
        bystander
    }

    /// One of each request, which must succeed. Returns what the slowest took.
    fn round(&self) -> Duration {
        let timed = |ask: &dyn Fn()| {
            let begun = Instant::now();
            ask();
            begun.elapsed()
        };
        let echo = json!({ "command": "echo", "args": ["here"] });
        [
            timed(&|| drop(self.client.put(format!("{}/raw/f", self.tree), "x").ok())),
            timed(&|| assert_eq!(self.client.text(&self.tree, "f"), "x")),
            timed(&|| assert_eq!(self.client.files(&self.tree), ["f"])),
            timed(&|| assert_eq!(self.client.get("/readyz").status, 200)),
            timed(&|| assert_eq!(self.client.get("/healthz").status, 200)),
            timed(&|| {
                let ran = self.client.post_json(format!("{}/exec", self.tree), &echo).ok();
                assert_eq!(ran["data"]["stdout"], "here\n");
            }),
        ]
        .into_iter()
        .max()
        .unwrap()
    }

    /// Asks while `attack` goes on, which must go on for as long.
    fn beside<T: Send>(&self, attack: impl FnOnce() -> T + Send) -> (Finding, T) {
        let is_over = AtomicBool::new(false);
        let (mut rounds, mut slowest) = (0, Duration::ZERO);
        let attacked = thread::scope(|threads| {
            let attacking = threads.spawn(|| {
                let attacked = attack();
                is_over.store(true, Ordering::Relaxed);
                attacked
            });
            while rounds < ROUNDS && (rounds == 0 || !is_over.load(Ordering::Relaxed)) {
                slowest = slowest.max(self.round());
                rounds += 1;
            }
            attacking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let allowed = self.alone * 10 + paced(GRACE);
        if slowest > allowed {
            let evidence = format!("a second user waited for {slowest:?}; {:?} alone", self.alone);
            return (Finding::Through(evidence), attacked);
        }
        (Finding::Stopped, attacked)
    }
}

/// The outcome of an attack: whether its second user was held up, or else the finding of `further`.
fn both(finding: Finding, further: impl FnOnce() -> Finding) -> Finding {
    if finding == Finding::Stopped { further() } else { finding }
}

/// The head of a request.
fn asking(client: &Client, target: &str) -> String {
    let token = client.token.as_deref().unwrap_or_default();
    format!("GET {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n", client.address)
}

/// Sends a request and goes away before the answer.
fn abandoned(client: &Client, target: &str) {
    let mut stream = client.connect();
    stream.write_all(asking(client, target).as_bytes()).unwrap();
    // Long enough for the service to begin.
    thread::sleep(paced(Duration::from_millis(50)));
}

/// Sparse files are packed for long and take no room. A write waits for the skill's lock meanwhile, and a further download
/// for a place of its user.
fn abandoning(scene: &Scene<'_>) -> Finding {
    let (client, tree) = (scene.client(), scene.skill());
    scene.put(&tree, "small", "x");
    let download = format!("{tree}/download");
    assert_eq!(client.get(&*download).status, 200, "the control: a download");
    // Asked as those that are abandoned, but with a caller who waits.
    let asked = asking(client, &download).replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
    let mut stream = client.connect();
    stream.write_all(asked.as_bytes()).unwrap();
    let reply = client.read_reply(&mut stream, "GET download", asked.as_bytes());
    assert_eq!(reply.map(|reply| reply.status), Some(200), "the control: asked by hand");
    let bytes = scene.stage.limit("file_bytes").min(PACKED_FILE_BYTES);
    // All that a download may pack.
    let count = DOWNLOAD_BYTES / bytes - 1;
    let line = format!("for i in $(seq {count}); do truncate -s {bytes} sparse$i; done; ls | grep -c sparse");
    let ran = scene.exec(&tree, &json!({ "shell": line }));
    assert_eq!(ran.stdout(), format!("{count}\n"), "{}", ran.result);
    let begun = Instant::now();
    assert_eq!(client.get(&*download).status, 200, "the control: it is packed");
    let whole = begun.elapsed();
    assert!(whole > Duration::from_millis(100), "the control: packing takes long: {whole:?}");
    let bystander = Bystander::new(scene);
    let (finding, (written, again, answers)) = bystander.beside(|| {
        for _ in 0..4 {
            abandoned(client, &download);
        }
        let begun = Instant::now();
        client.put(format!("{tree}/raw/small"), "y").ok();
        let (written, begun) = (begun.elapsed(), Instant::now());
        assert_eq!(client.get(&*download).status, 200, "the next download");
        let again = begun.elapsed();
        (0..4).for_each(|_| abandoned(client, &download));
        let answers = thread::scope(|threads| {
            let write = |_| threads.spawn(|| client.put(format!("{tree}/raw/small"), "y").status);
            let writes: Vec<_> = (0..WRITES).map(write).collect();
            writes.into_iter().map(|write| write.join().unwrap()).collect::<Vec<u16>>()
        });
        (written, again, answers)
    });
    let other = answers.iter().find(|status| !matches!(status, 200 | 201 | 429));
    assert_eq!(other, None, "a write is made, or too many");
    client.post(format!("{tree}/reset"), "").ok();
    let alone = bystander.alone * 10;
    both(finding, || match () {
        () if written > whole / 2 + alone => {
            Finding::Through(format!("a write waited for {written:?}; a download alone takes {whole:?}"))
        }
        () if again > whole * 2 + alone => {
            Finding::Through(format!("the next download took {again:?}, {whole:?} alone"))
        }
        () => Finding::Stopped,
    })
}

/// The body is refused before anything of it is kept.
fn listing_nothing(scene: &Scene<'_>) -> Finding {
    let (client, tree) = (scene.client(), scene.workspace());
    scene.write("f", "here\n");
    let found =
        client.post_json(format!("{tree}/grep"), &json!({ "pattern": "here", "include": ["*"] })).ok();
    assert_eq!(found["data"].as_array().unwrap().len(), 1, "the control");
    let bystander = Bystander::new(scene);
    for (elements, status) in [(300_000, 400), (8_000_000, 413)] {
        let list = "\"\",".repeat(elements) + "\"\"";
        let body = format!("{{\"pattern\":\"x\",\"include\":[{list}]}}");
        let mut finding = Finding::Stopped;
        let mut attack = || {
            finding =
                bystander.beside(|| assert_eq!(client.post(format!("{tree}/grep"), &body).status, status)).0;
        };
        let grown = match scene.host() {
            Some(host) => growth(host.service(), attack),
            None => {
                attack();
                0
            }
        };
        let grown_most = 16 * MIB as u64;
        let finding = both(finding, || match grown < grown_most {
            true => Finding::Stopped,
            false => Finding::Through(format!("{elements} elements took {grown} bytes")),
        });
        if finding != Finding::Stopped {
            return finding;
        }
    }
    Finding::Stopped
}

/// All of them together take no more memory than the bodies of one user may.
fn sending_bodies(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs the memory of the service's process".into());
    };
    let (client, tree) = (scene.client(), scene.workspace());
    scene.write("f", "a text");
    let replace = |old: &str| {
        let edit = json!({ "old_string": old, "new_string": "" });
        json!({ "path": "f", "edits": [edit] }).to_string()
    };
    client.post(format!("{tree}/replace"), replace("a ")).ok();
    let bystander = Bystander::new(scene);
    let body = replace("LONG").replacen("LONG", &"a".repeat(12 * MIB), 1);
    let mut finding = Finding::Stopped;
    let grown = growth(host.service(), || {
        let (found, statuses) = bystander.beside(|| {
            thread::scope(|threads| {
                let send = |_| threads.spawn(|| client.post(format!("{tree}/replace"), &body).status);
                let sends: Vec<_> = (0..10).map(send).collect();
                sends.into_iter().map(|send| send.join().unwrap()).collect::<Vec<u16>>()
            })
        });
        assert!(statuses.iter().all(|status| matches!(status, 409 | 429)), "{statuses:?}");
        finding = found;
    });
    // The stages hold 32 MiB of bodies of one user: two at once, each of which is there a second time when it has been
    // read. All ten would take 240 MiB, and an allocator that keeps what was freed 100.
    both(finding, || match grown < 76 * MIB as u64 {
        true => Finding::Stopped,
        false => Finding::Through(format!("the service grew by {grown} bytes")),
    })
}

fn editing(scene: &Scene<'_>) -> Finding {
    let (client, tree) = (scene.client(), scene.workspace());
    let markers: String = (0..1000).map(|number| format!("<{number}>")).collect();
    scene.write("large", markers.clone() + &"no marker is here\n".repeat(4 * MIB / 18));
    scene.write("small", markers);
    let edits = |path: &str, numbers: std::ops::Range<usize>| {
        let edit =
            |number| json!({ "old_string": format!("<{number}>"), "new_string": format!("({number})") });
        json!({ "path": path, "edits": numbers.map(edit).collect::<Vec<_>>() })
    };
    client.post_json(format!("{tree}/replace"), &edits("small", 0..1000)).ok();
    client.post_json(format!("{tree}/replace"), &edits("large", 0..2)).ok();
    let bystander = Bystander::new(scene);
    let body = edits("large", 2..1000);
    let (finding, replies) = bystander.beside(|| {
        thread::scope(|threads| {
            let (body, tree) = (&body, &tree);
            let send = |_| threads.spawn(move || client.post_json(format!("{tree}/replace"), body).status);
            let sends: Vec<_> = (0..2).map(send).collect();
            sends.into_iter().map(|send| send.join().unwrap()).collect::<Vec<u16>>()
        })
    });
    // Each marker is there, so the work goes on until it is too much.
    let is_bounded = replies.iter().all(|status| matches!(status, 413 | 429)) && replies.contains(&413);
    both(finding, || match is_bounded {
        true => Finding::Stopped,
        false => Finding::Through(format!("{replies:?}")),
    })
}

fn patching(scene: &Scene<'_>) -> Finding {
    let (client, tree) = (scene.client(), scene.workspace());
    const LINES: usize = 100_000;
    scene.write("f", (0..LINES).map(|line| format!("{line}\n")).collect::<String>());
    // Each hunk is far behind the line that it names.
    let patch = |hunks: usize| {
        let hunk = |number: usize| format!("@@ -1 +1 @@\n-{0}\n+{0}\n", LINES / 2 + number);
        let hunks: String = (0..hunks).map(hunk).collect();
        json!({ "patch": format!("--- a/f\n+++ b/f\n{hunks}") })
    };
    client.post_json(format!("{tree}/patch"), &patch(10)).ok();
    let bystander = Bystander::new(scene);
    let (finding, reply) = bystander.beside(|| client.post_json(format!("{tree}/patch"), &patch(2000)));
    both(finding, || match reply.status {
        400 => Finding::Stopped,
        status => Finding::Through(format!("the patch was looked for to its end: {status}")),
    })
}

/// A list of all lines would take sixteen bytes for each.
fn patching_nothing(scene: &Scene<'_>) -> Finding {
    let (client, tree) = (scene.client(), scene.workspace());
    scene.write("f", "\n".repeat(3 * MIB));
    scene.write("small", "\n".repeat(1000));
    let patch = |path: &str| json!({ "patch": format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-\n+x\n") });
    client.post_json(format!("{tree}/patch"), &patch("small")).ok();
    match client.post_json(format!("{tree}/patch"), &patch("f")).status {
        413 => Finding::Stopped,
        status => Finding::Through(format!("all lines were listed: {status}")),
    }
}

/// Each stream takes one of the kernel's few instances until its feed has gone.
fn leaving_streams(scene: &Scene<'_>) -> Finding {
    let client = scene.client();
    let bystander = Bystander::new(scene);
    let listen = |tree: &str| {
        let mut begin = Vec::new();
        let mut stream = client.connect();
        stream.write_all(asking(client, &format!("{tree}/events")).as_bytes()).unwrap();
        let mut piece = [0; 4096];
        while !begin.windows(5).any(|window| window == b"ready") {
            let read = std::io::Read::read(&mut stream, &mut piece).unwrap();
            if read == 0 {
                break;
            }
            begin.extend_from_slice(&piece[..read]);
            if begin.starts_with(b"HTTP/1.1 4") || begin.starts_with(b"HTTP/1.1 5") {
                break;
            }
        }
        let told = String::from_utf8_lossy(&begin).into_owned();
        (told.contains("ready"), told)
    };
    let (is_heard, told) = listen(&bystander.tree);
    assert!(is_heard, "the control: {told}");
    // More trees than the kernel has instances for one user (`fs.inotify.max_user_instances`, usually 128).
    let (finding, ()) = bystander.beside(|| {
        for number in 0..150 {
            let tree = format!("/v1/sandbox/{}/agent-{number}", encoded(&scene.user));
            client.put(format!("{tree}/raw/f"), "x").ok();
            // Until the service has seen that the streams before are left.
            let begun = Instant::now();
            while !listen(&tree).0 && begun.elapsed() < paced(GRACE) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    both(finding, || match (listen(&bystander.tree), watches(scene)) {
        ((false, told), _) => Finding::Through(format!("a second user hears nothing: {told}")),
        (_, Some(after)) if after > STREAM_DESCRIPTORS => {
            Finding::Through(format!("one user's streams hold {after} descriptors of watches"))
        }
        _ => Finding::Stopped,
    })
}

/// The descriptors of watches that the service has by now, where this suite may look.
fn watches(scene: &Scene<'_>) -> Option<usize> {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", scene.host()?.service())).ok()?;
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(links.filter(|link| link.as_os_str() == "anon_inode:inotify").count())
}
