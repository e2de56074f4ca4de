//! Forms that no client sends: recorded ones, changed at random, the same in every run.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::SystemTime;

use crate::doors::{ON, create, told};
use crate::support::{Client, Service};
use crate::transcripts::{self, find};

/// Forms that are sent; with `FILESECBOX_LARGE`, five times as many.
const FORMS: u64 = 2_000;
/// Connections that send them, each to an agent of its own.
const CONNECTIONS: u64 = 4;
/// Forms after which a connection goes on with a new agent, so that looking at everything an agent has stays quick.
const OF_ONE_AGENT: u64 = 50;

/// File names as no skill has them, or seldom.
const NAMES: [&str; 16] = [
    "数据统计/SKILL.md",
    "数据统计/深/更深/文件.txt",
    "../../escape/SKILL.md",
    "/etc/SKILL.md",
    "a\\b\\SKILL.md",
    "a/./SKILL.md",
    "a//SKILL.md",
    "a/SKILL.md/x",
    "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z/A/B/C/D/E/F/G/SKILL.md",
    "SKILL.md",
    ".filesecbox/SKILL.md",
    "",
    ".",
    "con\u{1}trol/SKILL.md",
    "e\u{301}/SKILL.md",
    "\u{202e}dm.LLIKS/a",
];

/// Numbers that follow from a seed (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }

    fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// Changes a form in one way.
    fn change(&mut self, body: &mut Vec<u8>) {
        let at = self.below(body.len());
        match self.below(10) {
            0 => body[at] = u8::try_from(self.below(256)).unwrap(),
            1 => body.insert(at, b"\r\n-\"/.;\0"[self.below(8)]),
            2 => drop(body.remove(at)),
            3 => body.truncate(at.max(1)),
            4 => self.file_name(body),
            5 => self.part(body),
            6 => {
                // A part of it twice, or elsewhere.
                let end = at + self.below(body.len() - at);
                let piece = body[at..end].to_vec();
                let to = self.below(body.len());
                body.splice(to..to, piece);
            }
            7 => {
                let from = self.of(&[
                    &b"\r\n"[..],
                    b"--boundary",
                    b"form-data",
                    b"name=",
                    b"files[]",
                    b"---",
                    b": ",
                ]);
                let to = self.of(&[
                    &b"\n"[..],
                    b"",
                    b"--boundary--",
                    b"--",
                    b"attachment",
                    b"\r\n\r\n",
                    b"NAME=",
                    b"file",
                ]);
                self.replace(body, from, to);
            }
            8 => {
                let length = 1 << self.below(17);
                let byte = b"a/.\0\r-"[self.below(6)];
                body.splice(at..at, std::iter::repeat_n(byte, length));
            }
            _ => {
                let header = self.of(&[
                    &b"Content-Type: multipart/mixed; boundary=boundary\r\n"[..],
                    b"Content-Transfer-Encoding: base64\r\n",
                    b"Content-Length: 99999999999999999999\r\n",
                    b"Content-Disposition: form-data; name=\"files[]\"; filename=\"again/SKILL.md\"\r\n",
                ]);
                let lines: Vec<usize> =
                    (0..body.len()).filter(|at| body[*at..].starts_with(b"Content-")).collect();
                if !lines.is_empty() {
                    let line = lines[self.below(lines.len())];
                    body.splice(line..line, header.iter().copied());
                }
            }
        }
    }

    /// Gives a file another name, in either of the forms that names have.
    fn file_name(&mut self, body: &mut Vec<u8>) {
        let names: Vec<usize> =
            (0..body.len()).filter(|at| body[*at..].starts_with(b"filename=\"")).collect();
        if names.is_empty() {
            return;
        }
        let at = names[self.below(names.len())];
        let Some(end) = find(&body[at + 10..], b"\"") else { return };
        let name = self.of(&NAMES);
        let written = match self.below(4) {
            0 => format!("filename=\"{name}\""),
            1 => format!("filename*=UTF-8''{}", crate::support::encoded(name)),
            2 => format!("filename=\"x\"; filename*=gb18030''{}", crate::support::encoded(name)),
            _ => format!("filename={name}"),
        };
        body.splice(at..at + 11 + end, written.into_bytes());
    }

    /// Sends a part twice, leaves one out, or swaps two.
    fn part(&mut self, body: &mut Vec<u8>) {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut rest = body.as_slice();
        while let Some(at) = find(rest.get(1..).unwrap_or_default(), b"--boundary") {
            parts.push(rest[..=at].to_vec());
            rest = &rest[at + 1..];
        }
        if parts.is_empty() {
            return;
        }
        let (one, other) = (self.below(parts.len()), self.below(parts.len()));
        match self.below(3) {
            0 => parts.insert(other, parts[one].clone()),
            1 => drop(parts.remove(one)),
            _ => parts.swap(one, other),
        }
        *body = [parts.concat(), rest.to_vec()].concat();
    }

    fn replace(&mut self, body: &mut Vec<u8>, from: &[u8], to: &[u8]) {
        let places: Vec<usize> = (0..body.len()).filter(|at| body[*at..].starts_with(from)).collect();
        if !places.is_empty() {
            let at = places[self.below(places.len())];
            body.splice(at..at + from.len(), to.iter().copied());
        }
    }
}

/// A connection that is kept from request to request.
struct Kept<'a> {
    client: &'a Client,
    stream: Option<TcpStream>,
}

impl Kept<'_> {
    /// Sends a form that says to have `announced` bytes. Returns the status; `None` for no answer, which only a form that is not as
    /// long as it says may get.
    fn post(&mut self, target: &str, body: &[u8], announced: usize) -> Option<u16> {
        let head = format!(
            "POST {target} HTTP/1.1\r\nhost: {}\r\ncontent-type: multipart/form-data; boundary=boundary\r\ncontent-length: {announced}\r\n\r\n",
            self.client.address
        );
        let mut stream = self.stream.take().unwrap_or_else(|| self.client.connect());
        // A refusal may come before everything is sent.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        if announced != body.len() {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        let end = loop {
            if let Some(end) = find(&answer, b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(read) => answer.extend_from_slice(&piece[..read]),
            }
        };
        let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let whole = end + length.parse::<usize>().unwrap();
        while answer.len() < whole {
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => panic!("the answer ends early: {head}"),
                Ok(read) => answer.extend_from_slice(&piece[..read]),
            }
        }
        if announced == body.len() && !head.contains("connection: close") {
            self.stream = Some(stream);
        }
        Some(head.split(' ').nth(1).unwrap().parse().unwrap())
    }
}

/// Everything that is on the disk for an agent: paths with sizes and times of change.
fn on_disk(root: &Path, agent: &str) -> BTreeMap<String, (u64, SystemTime)> {
    let own = |name: &str| format!(".filesecbox/{name}/{agent}");
    let places = ["versions", "history", "bases", "pins"].map(own);
    let places =
        [format!("skill/baseline/{agent}"), format!("skill/overlay/alice/{agent}")].into_iter().chain(places);
    let entries = places.flat_map(|place| walkdir::WalkDir::new(root.join(place))).filter_map(Result::ok);
    entries
        .map(|entry| {
            let about = entry.metadata().unwrap();
            (entry.path().display().to_string(), (about.len(), about.modified().unwrap()))
        })
        .collect()
}

/// What a connection was answered.
#[derive(Default, Debug)]
struct Answered {
    taken: u64,
    refused: u64,
    silent: u64,
}

/// Sends its share of the forms, and looks after each that was refused whether anything was written.
fn send(service: &Service, forms: &[Vec<u8>], number: u64, many: u64) -> Answered {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
    let mut kept = Kept { client: &service.client, stream: None };
    let mut answered = Answered::default();
    let (mut agent, mut before) = (String::new(), BTreeMap::new());
    for round in 0..many {
        if round % OF_ONE_AGENT == 0 {
            agent = format!("agent-{number}-{round}");
            let base = format!("/compat/anthropic/a/{agent}/v1/skills");
            told(&create(&service.client, &base, "数据统计", "1"), 200);
            before = on_disk(&service.root, &agent);
            assert!(before.len() > 3, "{before:?}");
        }
        let target = random.of(&[
            "/compat/anthropic/a/{a}/v1/skills",
            "/compat/anthropic/a/{a}/v1/skills/数据统计/versions",
            "/compat/anthropic/u/alice/a/{a}/v1/skills",
            "/compat/openai/a/{a}/v1/skills",
            "/compat/openai/a/{a}/v1/skills/数据统计/versions",
            "/compat/openai/u/alice/a/{a}/v1/skills",
        ]);
        let target = target.replace("{a}", &agent).replace("数据统计", &crate::support::encoded("数据统计"));
        let mut body = forms[random.below(forms.len())].clone();
        for _ in 0..=random.below(3) {
            random.change(&mut body);
            if body.is_empty() {
                break;
            }
        }
        let announced = match random.below(16) {
            0 => body.len() + 1 + random.below(1000),
            1 => random.below(body.len().max(1)),
            _ => body.len(),
        };
        let status = kept.post(&target, &body, announced);
        let shown = || format!("{target}, {announced} bytes: {}", String::from_utf8_lossy(&body));
        let is_taken = match status {
            Some(200) => {
                answered.taken += 1;
                true
            }
            Some(400 | 408 | 413 | 404) => {
                answered.refused += 1;
                false
            }
            None if announced > body.len() => {
                answered.silent += 1;
                false
            }
            status => panic!("{status:?}: {}", shown()),
        };
        let now = on_disk(&service.root, &agent);
        assert!(
            is_taken || now == before,
            "{status:?}, and something was written: {}\n{before:?}\n{now:?}",
            shown()
        );
        before = now;
    }
    answered
}

#[test]
fn no_form_breaks_the_service_and_a_refused_one_leaves_nothing() {
    let service = Service::configured(ON);
    let many = if std::env::var_os("FILESECBOX_LARGE").is_some() { 5 * FORMS } else { FORMS };
    let recorded = transcripts::all().into_values().flatten();
    let is_form =
        |one: &transcripts::Recorded| one.headers.iter().any(|(_, value)| value.contains("multipart"));
    let mut forms: Vec<Vec<u8>> = recorded.filter(is_form).filter_map(|one| one.body).collect();
    forms.retain(|form| form.len() < 4096);
    forms.sort_unstable();
    forms.dedup();
    assert!(forms.len() > 10, "{}", forms.len());
    let answered: Vec<Answered> = std::thread::scope(|scope| {
        let (service, forms) = (&service, &forms);
        let started: Vec<_> = (0..CONNECTIONS)
            .map(|number| scope.spawn(move || send(service, forms, number, many / CONNECTIONS)))
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let taken: u64 = answered.iter().map(|one| one.taken).sum();
    let refused: u64 = answered.iter().map(|one| one.refused).sum();
    // Neither is all of it nothing: what is random is the same each time.
    assert!(taken > many / 50 && refused > many / 4, "{answered:?}");
    // What was on its way is gone: files in the stage, and those of no name.
    let stage = service.root.join(".filesecbox/stage");
    let is_quiet = || {
        let staged = std::fs::read_dir(&stage).unwrap().count();
        let open = std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap();
        let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let unnamed = open.filter(|path| path.starts_with(&stage) && *path != stage).count();
        (staged, unnamed) == (0, 0)
    };
    let begin = std::time::Instant::now();
    while !is_quiet() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "something stays in the stage");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
