//! What the vendors' packages send and what they are answered, recorded, and sent again without them.
//!
//! `transcripts/` has a file for each package. Its first line names the package and the headers of all its requests; each further line
//! is a request with its answer. Left out is what differs from machine to machine, and the boundary of every form is `boundary`.
//! In answers, times are replaced by words; a path that holds a time of an earlier answer says where: `{3:latest_version}` is that
//! field of the answer in the fourth line of requests.
//!
//! `FILESECBOX_RECORD=1 cargo test --test compat does_everything`, with the variables of `clients.rs` and `installers.rs`, writes the
//! files anew.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::between::Passed;
use crate::doors::{ON, TOKENS};
use crate::support::{Reply, Service};

/// Headers that tell of the machine, the run, or the connection.
const LEFT_OUT: [&str; 14] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "expect",
    "user-agent",
    "accept-encoding",
    "accept-language",
    "idempotency-key",
    "x-stainless-arch",
    "x-stainless-os",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
];
const BOUNDARY: &str = "boundary";

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/transcripts"))
}

/// Tells whether what packages send is to be written down.
pub(crate) fn are_recorded() -> bool {
    std::env::var_os("FILESECBOX_RECORD").is_some()
}

/// Writes down what a package sent.
pub(crate) fn record(package: &str, passed: &[Passed]) {
    let answers: Vec<Value> = passed.iter().map(|one| answer_of(&one.answer)).collect();
    let requests: Vec<BTreeMap<String, String>> = passed.iter().map(headers_of).collect();
    let mut common = requests[0].clone();
    common.retain(|name, value| requests.iter().all(|headers| headers.get(name) == Some(value)));
    let first = json!({ "package": package, "headers": common });
    let mut text = format!("{first}\n");
    for (number, (one, mut headers)) in passed.iter().zip(requests).enumerate() {
        headers.retain(|name, _| !common.contains_key(name));
        let (method, target) = one.asked();
        let mut line = Map::new();
        line.insert("asked".into(), format!("{method} {}", with_places(target, &answers[..number])).into());
        line.insert("headers".into(), json!(headers));
        if !one.body.is_empty() {
            let body = with_boundary(one);
            let (name, body) = match String::from_utf8(body) {
                Ok(text) => ("body", text),
                Err(error) => ("base64", STANDARD.encode(error.into_bytes())),
            };
            line.insert(name.into(), body.into());
        }
        line.insert("status".into(), one.status.into());
        line.insert("answer".into(), masked(answers[number].clone()));
        text.push_str(&format!("{}\n", Value::Object(line)));
    }
    std::fs::create_dir_all(directory()).unwrap();
    std::fs::write(directory().join(format!("{package}.jsonl")), text).unwrap();
}

fn headers_of(one: &Passed) -> BTreeMap<String, String> {
    let headers = one.head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let mut headers: BTreeMap<_, _> =
        headers.filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())).collect();
    if let Some(kind) = headers.get_mut("content-type")
        && let Some(at) = kind.find("boundary=")
    {
        kind.replace_range(at.., &format!("boundary={BOUNDARY}"));
    }
    headers
}

/// The body of a form with [`BOUNDARY`] in the place of its own.
fn with_boundary(one: &Passed) -> Vec<u8> {
    let kind = one.header("content-type").unwrap_or_default();
    let Some((_, boundary)) = kind.split_once("boundary=") else { return one.body.clone() };
    let boundary = format!("--{}", boundary.trim_matches('"'));
    let (mut body, mut rest) = (Vec::new(), one.body.as_slice());
    while let Some(at) = find(rest, boundary.as_bytes()) {
        body.extend_from_slice(&rest[..at]);
        body.extend_from_slice(format!("--{BOUNDARY}").as_bytes());
        rest = &rest[at + boundary.len()..];
    }
    body.extend_from_slice(rest);
    body
}

pub(crate) fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Times in microseconds in a path, as places where an earlier answer has them.
fn with_places(target: &str, answers: &[Value]) -> String {
    let place = |segment: &str| {
        let said = Value::from(segment);
        let found = answers.iter().enumerate().rev().find_map(|(number, answer)| {
            let name = answer.as_object()?.iter().find(|(_, value)| **value == said)?.0.clone();
            Some(format!("{{{number}:{name}}}"))
        });
        found.unwrap_or_else(|| panic!("no answer has the {segment} of {target}"))
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let segments =
        path.split('/').map(|segment| if is_micros(segment) { place(segment) } else { segment.into() });
    let path = segments.collect::<Vec<_>>().join("/");
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

/// The reverse of [`with_places`].
fn without_places(target: &str, answers: &[Value]) -> String {
    let segment = |segment: &str| {
        let place = segment.strip_prefix('{').and_then(|place| place.strip_suffix('}'));
        let Some((number, name)) = place.and_then(|place| place.split_once(':')) else {
            return segment.to_owned();
        };
        answers[number.parse::<usize>().unwrap()][name].as_str().unwrap().to_owned()
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.split('/').map(segment).collect::<Vec<_>>().join("/");
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

fn is_micros(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What an answer says: its JSON, or the files of its archive with their checksums.
fn said(body: &[u8]) -> Value {
    if !body.starts_with(b"PK") {
        return serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into());
    }
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(body)).unwrap();
    let mut files = Map::new();
    for index in 0..archive.len() {
        let file = archive.by_index(index).unwrap();
        files.insert(
            file.name().unwrap().into_owned(),
            format!("{} bytes, CRC {:08x}", file.size(), file.crc32()).into(),
        );
    }
    json!({ "archive": files })
}

fn answer_of(answer: &[u8]) -> Value {
    said(&answer[find(answer, b"\r\n\r\n").unwrap() + 4..])
}

/// Words in the place of times and ids of requests.
fn masked(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let one = |(name, value): (String, Value)| {
                let value = match (name.as_str(), &value) {
                    ("request_id", Value::String(_)) => "<id>".into(),
                    ("created_at" | "updated_at", Value::String(_) | Value::Number(_)) => "<time>".into(),
                    _ => masked(value),
                };
                (name, value)
            };
            Value::Object(fields.into_iter().map(one).collect())
        }
        Value::Array(values) => values.into_iter().map(masked).collect(),
        Value::String(text) if is_micros(&text) => "<micros>".into(),
        value => value,
    }
}

/// A recorded request.
pub(crate) struct Recorded {
    pub(crate) asked: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
    status: u64,
    answer: Value,
}

/// The recorded requests of every package, by its name.
pub(crate) fn all() -> BTreeMap<String, Vec<Recorded>> {
    let files = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| read(&std::fs::read_to_string(path).unwrap())).collect()
}

fn read(text: &str) -> (String, Vec<Recorded>) {
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let first = lines.next().unwrap();
    let headers = |line: &Value| {
        let headers = line["headers"].as_object().unwrap().iter();
        headers.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect::<Vec<_>>()
    };
    let one = |line: Value| Recorded {
        asked: line["asked"].as_str().unwrap().to_owned(),
        headers: [headers(&first), headers(&line)].concat(),
        body: match (&line["body"], &line["base64"]) {
            (Value::String(text), _) => Some(text.clone().into_bytes()),
            (_, Value::String(text)) => Some(STANDARD.decode(text).unwrap()),
            _ => None,
        },
        status: line["status"].as_u64().unwrap(),
        answer: line["answer"].clone(),
    };
    (first["package"].as_str().unwrap().to_owned(), lines.map(one).collect())
}

/// Sends a request as it was recorded.
fn send(service: &Service, recorded: &Recorded, answers: &[Value]) -> Reply {
    let (method, target) = recorded.asked.split_once(' ').unwrap();
    let mut request = service.client.request(method, without_places(target, answers));
    for (name, value) in &recorded.headers {
        request = request.header(name, value);
    }
    match &recorded.body {
        Some(body) => request.body(body).send(),
        None => request.send(),
    }
}

#[test]
fn what_the_packages_sent_is_answered_as_it_was() {
    let all = all();
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    let expected = [
        "anthropic-0.125.0",
        "anthropic-0.71.0",
        "anthropic-1.17.0",
        "anthropic-2.12.0",
        "anthropic-ai-sdk-1.12.0",
        "openai-2.54.0",
        "openai-3.54.0",
        "openai-7.57.0",
    ];
    assert_eq!(names, expected);
    std::thread::scope(|scope| {
        for (package, requests) in &all {
            scope.spawn(move || {
                let service = Service::configured(&format!("{ON}{}", TOKENS.concat()));
                let mut answers = Vec::new();
                for (number, recorded) in requests.iter().enumerate() {
                    let reply = send(&service, recorded, &answers);
                    let told = (u64::from(reply.status), masked(said(&reply.body)));
                    let expected = (recorded.status, recorded.answer.clone());
                    assert_eq!(told, expected, "{package}, request {number}: {}", recorded.asked);
                    answers.push(said(&reply.body));
                }
            });
        }
    });
}
