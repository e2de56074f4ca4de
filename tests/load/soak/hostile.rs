//! [`Hostile`]: a user who takes what one token gives, to stop the others. What is answered does not matter but for 500.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

use crate::client::{Broken, Client};
use crate::random::Random;
use crate::skill;

/// How long a hostile user waits for an answer before it leaves.
const WAIT: Duration = Duration::from_secs(20);
/// How long it waits when it leaves on purpose.
const LEAVE: Duration = Duration::from_millis(300);

/// Lines of shell that want everything: processes, memory, disk, names, time, the service's files.
const LINES: &[&str] = &[
    "f() { f | f & }; f; sleep 2",
    "python3 -c 'import threading,time\nfor _ in range(100000): threading.Thread(target=time.sleep,args=(9,)).start()'",
    "python3 -c 'x=[]\nwhile True: x.append(bytearray(1<<24))'",
    "i=0; while true; do i=$((i+1)); head -c 1000000 /dev/zero > fill-$i || exit; done",
    "python3 -c 'import os\nfor i in range(200000): os.mkdir(str(i))'",
    "python3 -c 'import os\np=\"d\"\nfor i in range(900): os.mkdir(p); os.chdir(p)'",
    "yes | head -c 200000000",
    "(setsid sh -c 'trap \"\" TERM HUP; while true; do :; done' &) ; sleep 30",
    "python3 -c 'import os\nfor r in (\"..\",\"../..\",\"../../..\",\"../../../.filesecbox\",\"/\"):\n  \
     for m in (0,):\n    try: os.chmod(r,m)\n    except OSError: pass'",
    "kill -9 -1; kill -STOP -1",
    "python3 -c 'import socket\ns=[]\nwhile True:\n  c=socket.socket(); c.setblocking(False); s.append(c)\n  \
     c.connect_ex((\"127.0.0.1\",3128))'",
    "ln -s / root; ln -s ../../.. up; mkdir -p a/b; ln a/x a/b/x; chmod 000 a; mkfifo pipe; echo -n > 'a\nb'",
    "for i in 1 2 3 4 5 6 7 8 9; do truncate -s 500M sparse-$i; done",
];

/// One hostile user. It keeps no model: what becomes of its trees is its own concern.
pub(super) struct Hostile {
    user: String,
}

impl Hostile {
    pub(super) fn new(user: &str) -> Self {
        Self { user: user.to_owned() }
    }

    fn workspace(&self) -> String {
        format!("/v1/sandbox/{}/agent", self.user)
    }

    fn skill(&self) -> String {
        format!("/v1/skills/{}/agent/own", self.user)
    }

    /// Does one thing at random; [`Broken`] when the connection broke.
    ///
    /// # Panics
    /// When the service answers 500.
    pub(super) fn step(&mut self, url: &str, random: &mut Random) -> Result<(), Broken> {
        let workspace = self.workspace();
        match random.below(14) {
            0..=3 => {
                let line = random.pick(LINES).unwrap();
                self.run(url, line, 3_000)
            }
            4 => {
                // A run in the background, which a caller could leave behind.
                let body = json!({ "shell": "sleep 20", "timeout_ms": 20_000 });
                self.post(url, &format!("{workspace}/exec?background=true"), &body)
            }
            5 => {
                let body = json!({ "shell": "echo x > x", "commit": "ask" });
                self.post(url, &format!("{workspace}/exec"), &body)
            }
            6 => {
                // Nine names of a YAML document, each nine times the one before.
                let mut text = "---\nname: own\ndescription: d\na0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
                for level in 1..9 {
                    let former = format!("*a{}", level - 1);
                    text += &format!("a{level}: &a{level} [{}]\n", [former.as_str(); 9].join(","));
                }
                text += "---\n";
                self.put(url, &format!("{}/raw/SKILL.md", self.skill()), text.as_bytes())?;
                self.get(url, &format!("/v1/skills/{}/agent/list", self.user))
            }
            7 => {
                let body = json!({ "pattern": "x", "include": vec![""; 200_000] });
                self.post(url, &format!("{workspace}/grep"), &body)
            }
            8 => {
                let hunks = "@@ -1 +1 @@\n-a\n+b\n".repeat(2_000);
                let path = "p".repeat(200);
                let patch = format!("--- a/{path}\n+++ b/{path}\n{hunks}");
                self.post(url, &format!("{workspace}/patch"), &json!({ "patch": patch }))
            }
            9 => self.leave(url, "GET", &format!("{}/download", self.skill()), b""),
            10 => self.leave(url, "GET", &format!("{workspace}/events"), b""),
            11 => {
                self.put(url, &format!("{workspace}/raw/large-{}", random.below(9)), &vec![b'x'; 8 << 20])?;
                self.post(url, &format!("{workspace}/snapshots"), &json!({ "name": "s" }))
            }
            12 => {
                // A head that never ends, and a body that never comes, on connections that are left open for a moment.
                let address = url.trim_start_matches("http://");
                let mut held = Vec::new();
                for _ in 0..50 {
                    let Ok(mut stream) = TcpStream::connect(address) else { break };
                    let _ = stream
                        .write_all(b"PUT /v1/sandbox/hostile/agent/raw/x HTTP/1.1\r\nHost: localhost\r\nX: ");
                    held.push(stream);
                }
                std::thread::sleep(LEAVE);
                Ok(())
            }
            _ => {
                // What is removed while a run goes on making files in it.
                let body = json!({
                    "shell": "mkdir -p held && cd held && while :; do : > f$RANDOM 2>/dev/null; done",
                    "timeout_ms": 3_000,
                });
                self.post(url, &format!("{workspace}/exec?background=true"), &body)?;
                self.send(url, "DELETE", &format!("{workspace}/file?path=held&recursive=true"), b"", WAIT)?;
                let archive = skill::archive(&["own"], 1);
                let target = format!("/v1/skills/{}/agent/upload?scope=overlay", self.user);
                self.send(url, "POST", &target, &archive, WAIT)
            }
        }
    }

    /// Removes everything that the user has: runs under way, what waits for a decision, trees and snapshots.
    pub(super) fn remove(&self, client: &Client) {
        let removed = client.delete(&format!("{}?force=true&snapshots=true", self.workspace())).unwrap();
        if !removed.is_success() && removed.status != 404 {
            let runs = client.get(&format!("{}/exec", self.workspace())).unwrap();
            panic!("{}: {}; its runs: {}", self.user, removed.text(), runs.text());
        }
        let _ = client.delete(&format!("{}?scope=overlay", self.skill())).unwrap();
    }

    fn run(&self, url: &str, line: &str, timeout_ms: u64) -> Result<(), Broken> {
        self.post(
            url,
            &format!("{}/exec", self.workspace()),
            &json!({ "shell": line, "timeout_ms": timeout_ms }),
        )
    }

    fn get(&self, url: &str, target: &str) -> Result<(), Broken> {
        self.send(url, "GET", target, b"", WAIT)
    }

    fn put(&self, url: &str, target: &str, body: &[u8]) -> Result<(), Broken> {
        self.send(url, "PUT", target, body, WAIT)
    }

    fn post(&self, url: &str, target: &str, body: &Value) -> Result<(), Broken> {
        self.send(url, "POST", target, body.to_string().as_bytes(), WAIT)
    }

    /// Asks and does not wait for the whole answer.
    fn leave(&self, url: &str, method: &str, target: &str, body: &[u8]) -> Result<(), Broken> {
        let _ = self.send(url, method, target, body, LEAVE);
        Ok(())
    }

    fn send(&self, url: &str, method: &str, target: &str, body: &[u8], wait: Duration) -> Result<(), Broken> {
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(wait)).build();
        let agent = Agent::from(config);
        let request = Request::builder().method(method).uri(format!("{url}{target}"));
        let kind = if target.contains("/upload") { "application/zip" } else { "application/json" };
        let request = request.header("Content-Type", kind);
        let answered = if matches!(method, "GET" | "DELETE") {
            agent.run(request.body(()).unwrap())
        } else {
            agent.run(request.body(body).unwrap())
        };
        let mut response = match answered {
            Ok(response) => response,
            // Hostile users wait for each other: what they are not answered in time is their own concern.
            Err(ureq::Error::Timeout(_)) => return Ok(()),
            // A body that is refused before its end.
            Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(_) => return Err(Broken),
        };
        let status = response.status().as_u16();
        let text = match response.body_mut().with_config().limit(64 << 20).read_to_vec() {
            Ok(text) => text,
            Err(ureq::Error::Timeout(_)) => return Ok(()),
            Err(_) => return Err(Broken),
        };
        assert!(status != 500, "{}: {method} {target}: {}", self.user, String::from_utf8_lossy(&text));
        Ok(())
    }
}
