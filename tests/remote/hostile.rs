//! A backend that lies, talks too much, hangs and panics: attacks on the service that asks it.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use libtest_mimic::Trial;
use sandbox::{
    ByteStream, DirEntry, Error, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, FileKind, Program,
    ReadOptions, Result, Sandbox, SandboxExt, SandboxPath, UserId, Version, WriteOptions,
};
use serde_json::{Value, json};

use crate::own::Law;
use crate::server::Server;

const TREE: &str = "/v1/sandbox/victim/hostile";

/// Longer than a refusal is waited for where events are read.
const LATE: Duration = Duration::from_millis(1500);

/// What it does follows from the name of the file, or of the program. It panics without the panic hook, whose report
/// would hide the failure of another test.
#[derive(Debug)]
struct Hostile {
    /// A path of the host, which it tells whenever it can.
    workspace: SandboxPath,
}

pub(crate) fn trials(server: &Arc<Server>) -> Vec<Trial> {
    let workspace = SandboxPath::parse(server.place("hostile").to_str().unwrap()).unwrap();
    let hostile: Arc<dyn Sandbox> = Arc::new(Hostile { workspace });
    server.lend(&["victim"], "hostile", &hostile);
    let laws: [(&str, Law); 14] = [
        ("each_kind_of_failure_has_its_code_and_names_no_path", each_kind_of_failure_has_its_code),
        ("a_condition_that_nothing_is_known_about_is_refused", without_versions),
        ("a_version_that_is_never_the_right_one_is_an_end", never_the_right_one),
        ("a_file_with_other_bytes_than_told_is_never_taken_for_whole", other_bytes_than_told),
        ("a_file_that_makes_no_sense_is_an_internal_failure", nonsense),
        ("a_part_of_a_file_that_changes_meanwhile_is_never_another_part", changed_since_the_look),
        ("a_listing_has_names_only_sorted_whatever_comes", a_listing_is_sorted),
        ("a_result_is_bounded_whatever_comes", a_result_is_bounded),
        ("a_late_refusal_is_told", a_late_refusal_is_told),
        ("a_panic_is_an_internal_failure_and_the_name_is_free", a_panic),
        ("a_late_panic_is_an_end_like_any_other", a_late_panic),
        ("a_time_that_no_date_has_words_for_is_no_failure", any_time),
        ("a_file_that_was_not_taken_whole_is_not_written", not_taken_whole),
        ("each_kind_of_failure_is_promised_of_each_operation", each_kind_is_promised),
    ];
    let trial = |(name, law): (&str, Law)| {
        let server = Arc::clone(server);
        Trial::test(format!("hostile::{name}"), move || {
            law(&server);
            Ok(())
        })
    };
    laws.into_iter().map(trial).collect()
}

impl Hostile {
    fn info(&self, path: &SandboxPath, size: u64) -> FileInfo {
        FileInfo {
            name: path.file_name().unwrap_or_default().to_owned(),
            kind: FileKind::File,
            size,
            mode: 0o7777,
            modified: match path.file_name() {
                Some("future") => SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40),
                _ => SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 40),
            },
            version: Version::parse("never-the-right-one")
                .ok()
                .filter(|_| path.file_name() == Some("fickle")),
        }
    }

    fn failure(&self, kind: ErrorKind, path: &SandboxPath) -> Error {
        let told = format!("{} is at {path}; {}", self.workspace, "and so on ".repeat(10_000));
        Error::new(kind, "stat", told).at(path).because(std::io::Error::other(path.to_string()))
    }
}

fn kind(word: &str) -> Option<ErrorKind> {
    serde_json::from_value(Value::from(word)).ok()
}

#[async_trait]
impl Sandbox for Hostile {
    fn name(&self) -> &str {
        "hostile"
    }

    async fn workspace(&self, _user: &UserId) -> Result<SandboxPath> {
        Ok(self.workspace.clone())
    }

    async fn shell(&self, _user: &UserId) -> Result<String> {
        Ok(format!("{}/sh", self.workspace))
    }

    async fn exec(&self, _user: &UserId, spec: ExecSpec) -> Result<ExecResult> {
        let Program::Argv { program, .. } = &spec.program else { std::future::pending().await };
        let much = Bytes::from(vec![b'x'; 20 << 20]);
        match program.as_str() {
            "panic" => resume_unwind(Box::new("as it was told to")),
            "late" => {
                tokio::time::sleep(LATE).await;
                Err(Error::new(ErrorKind::NotFound, "exec", format!("nothing at {}", self.workspace)))
            }
            "late-panic" => {
                tokio::time::sleep(LATE).await;
                resume_unwind(Box::new("as it was told to"))
            }
            word if kind(word).is_some() => Err(self.failure(kind(word).unwrap(), &self.workspace)),
            _ => Ok(ExecResult {
                stdout: much.clone(),
                stderr: much,
                stdout_dropped_bytes: u64::MAX,
                stderr_dropped_bytes: u64::MAX,
                exit_code: i32::MAX,
                signal: Some("SIG".repeat(10_000)),
                timed_out: false,
                duration: Duration::MAX,
                hint: Some("hint".repeat(10_000)),
            }),
        }
    }

    async fn read_file(&self, _user: &UserId, path: &SandboxPath, options: ReadOptions) -> Result<FileBody> {
        let body = |size, range, pieces: Vec<&'static [u8]>| {
            let stream = stream::iter(pieces.into_iter().map(|piece| Ok(Bytes::from_static(piece)))).boxed();
            Ok(FileBody { info: self.info(path, size), range, stream })
        };
        match path.file_name().unwrap() {
            "short" => body(10, 0..10, vec![b"01234"]),
            "long" => body(10, 0..10, vec![b"01234", b"56789", b"more than there is"]),
            #[expect(clippy::reversed_empty_ranges, reason = "that is the attack")]
            "backwards" => body(10, 7..3, vec![]),
            "beyond" => body(10, 5..u64::MAX, vec![]),
            // All that is there, it says.
            "part" => body(10, 3..8, vec![b"34567"]),
            "future" | "fickle" | "new" => body(4, 0..4, vec![b"text"]),
            // It had ten bytes when it was looked at.
            "grown" => body(20, options.window(20, path)?, vec![b"789"]),
            "shrunk" => {
                let window = options.window(4, path)?;
                let piece: &[u8] = if window.is_empty() { b"" } else { b"text" };
                body(4, window, vec![piece])
            }
            name => Err(self.failure(kind(name).unwrap_or(ErrorKind::NotFound), path)),
        }
    }

    async fn write_file(
        &self,
        _user: &UserId,
        path: &SandboxPath,
        mut body: ByteStream,
        _options: WriteOptions,
    ) -> Result<Option<Version>> {
        match path.file_name().unwrap() {
            // Not the second, if there is one.
            "hasty" | "new" => body.next().await.unwrap().map(|_| None),
            "fickle" => Err(self.failure(ErrorKind::Stale, path)),
            "panic" => resume_unwind(Box::new("as it was told to")),
            name => Err(self.failure(kind(name).unwrap_or(ErrorKind::NotFound), path)),
        }
    }

    async fn stat(&self, _user: &UserId, path: &SandboxPath) -> Result<FileInfo> {
        match kind(path.file_name().unwrap()) {
            Some(kind) => Err(self.failure(kind, path)),
            None => Ok(self.info(path, 10)),
        }
    }

    async fn read_dir(&self, _user: &UserId, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        if let Some(kind) = path.file_name().and_then(kind) {
            return Err(self.failure(kind, path));
        }
        let names = ["z", "../../etc/passwd", "a", "..", "数据", "a\nb", "", "a"];
        Ok(names
            .map(|name| DirEntry { name: name.to_owned(), kind: FileKind::Directory, size: u64::MAX })
            .into())
    }

    async fn mkdir_all(&self, _user: &UserId, path: &SandboxPath, _permissions: u32) -> Result<()> {
        Err(self.failure(ErrorKind::Quota, path))
    }

    async fn remove(&self, _user: &UserId, path: &SandboxPath) -> Result<()> {
        Err(self.failure(path.file_name().and_then(kind).unwrap_or(ErrorKind::Internal), path))
    }

    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> Result<()> {
        self.remove(user, path).await
    }

    async fn close_for_user(&self, _user: &UserId) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

// That no failure tells where the backend's workspace is, the client looks at in each answer.

fn each_kind_of_failure_has_its_code(server: &Server) {
    let client = &server.client;
    for (kind, code, status) in [
        ("not_found", "not_found", 404),
        ("permission_denied", "denied", 403),
        ("is_directory", "is_directory", 409),
        ("not_a_directory", "not_a_directory", 409),
        ("not_empty", "not_empty", 409),
        ("already_exists", "already_exists", 409),
        // Nothing was to be swapped.
        ("stale", "internal", 500),
        ("too_large", "too_large", 413),
        ("quota", "quota", 507),
        ("timeout", "timeout", 504),
        ("disconnected", "disconnected", 503),
        ("invalid", "invalid", 400),
        ("unsupported", "unsupported", 501),
        ("busy", "busy", 429),
        ("internal", "internal", 500),
    ] {
        let reply = client.put(format!("{TREE}/raw/{kind}"), "x");
        let told = reply.refused(status, code);
        assert!(reply.body.len() < 2000, "{kind}: {} bytes", reply.body.len());
        let sentence = told["data"].as_str().unwrap();
        assert!(code == "internal" || sentence.contains(&format!("/workspace/{kind}")), "{told}");
    }
    assert_eq!(client.get(format!("{TREE}/info")).ok()["data"]["shell"], "sh");
}

fn other_bytes_than_told(server: &Server) {
    let (client, sandbox) = (&server.client, server.connected("hostile"));
    let user = UserId::parse("victim").unwrap();
    let read = |name: &str| {
        let path = SandboxPath::workspace().join(name).unwrap();
        server.runtime.block_on(sandbox.read(&user, &path))
    };
    assert!(read("short").is_err());
    // Never more than the head announces.
    assert!(read("long").is_ok_and(|bytes| bytes == "0123456789"));
    for name in ["short", "long"] {
        client.get(format!("{TREE}/content?path={name}")).refused(503, "disconnected");
    }
    let facts = client.get(format!("{TREE}/stat?path=short")).ok()["data"].clone();
    assert_eq!(facts["mode"], "0777");
}

fn without_versions(server: &Server) {
    let client = &server.client;
    for route in ["raw/new", "edit?path=new"] {
        for tag in ["*", "\"tag\""] {
            let put = client.request("PUT", format!("{TREE}/{route}")).header("if-match", tag);
            put.body("x").send().refused(501, "unsupported");
        }
    }
    for route in ["raw/new", "content?path=new"] {
        let get = |name: &str, value: &str| {
            client.request("GET", format!("{TREE}/{route}")).header(name, value).send()
        };
        let read = get("if-none-match", "\"tag\"");
        assert_eq!((read.status, read.header("etag")), (200, None));
        get("if-none-match", "*").refused(501, "unsupported");
        get("if-match", "\"tag\"").refused(501, "unsupported");
    }
}

fn never_the_right_one(server: &Server) {
    let client = &server.client;
    let read = client.get(format!("{TREE}/raw/fickle"));
    assert_eq!(read.header("etag"), Some("\"never-the-right-one\""));
    let put = |tag: &str| {
        client.request("PUT", format!("{TREE}/raw/fickle")).header("if-match", tag).body("x").send()
    };
    put("\"other\"").refused(412, "stale");
    for tag in ["*", "\"never-the-right-one\""] {
        let told = put(tag).refused(412, "stale");
        assert_eq!(told["current_etag"], "\"never-the-right-one\"");
    }
    client.put(format!("{TREE}/raw/fickle"), "x").refused(500, "internal");
    client.put(format!("{TREE}/edit?path=fickle&start=1"), "x").refused(409, "conflict");
    let edits = json!({"path": "fickle", "edits": [{"old_string": "text", "new_string": "t"}]});
    client.post_json(format!("{TREE}/replace"), &edits).refused(409, "conflict");
}

fn nonsense(server: &Server) {
    let client = &server.client;
    for name in ["backwards", "beyond", "part"] {
        client.get(format!("{TREE}/raw/{name}")).refused(500, "internal");
        client.get(format!("{TREE}/content?path={name}")).refused(500, "internal");
    }
    // No text is changed of which only a part came.
    let edits = json!({"path": "part", "edits": [{"old_string": "5", "new_string": "five"}]});
    client.post_json(format!("{TREE}/replace"), &edits).refused(500, "internal");
    let ranged = client.request("GET", format!("{TREE}/raw/part")).header("range", "bytes=0-1").send();
    ranged.refused(500, "internal");
    client.delete(format!("{TREE}/raw/file")).refused(500, "internal");
}

fn changed_since_the_look(server: &Server) {
    let get = |name: &str, range: &str| {
        server.client.request("GET", format!("{TREE}/raw/{name}")).header("range", range).send()
    };
    let grown = get("grown", "bytes=7-");
    assert_eq!(grown.header("content-range"), Some("bytes 7-9/20"));
    assert_eq!(grown.bytes(206), b"789");
    // Nothing is left of its end, and there is another end.
    assert_eq!(get("shrunk", "bytes=-3").bytes(200), b"text");
    get("shrunk", "bytes=7-").refused(416, "range_not_satisfiable");
}

fn not_taken_whole(server: &Server) {
    let client = &server.client;
    client.put(format!("{TREE}/raw/hasty"), vec![b'x'; 4 << 20]).refused(500, "internal");
    client.put(format!("{TREE}/edit?path=new"), "text").refused(500, "internal");
}

fn any_time(server: &Server) {
    let client = &server.client;
    let read = client.get(format!("{TREE}/raw/future"));
    assert_eq!(read.bytes(200), b"text");
    assert_eq!(read.header("last-modified"), Some("Fri, 31 Dec 9999 23:59:59 GMT"));
    let facts = client.get(format!("{TREE}/stat?path=future")).ok()["data"].clone();
    assert_eq!(facts["modified_at"], "9999-12-31T23:59:59.999Z");
}

fn a_late_panic(server: &Server) {
    let client = &server.client;
    let command = json!({"command": "late-panic", "exec_id": "late-panic"});
    let events: Vec<Value> = client.stream_run(TREE, &command).collect();
    let words: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(words, ["started", "exit"]);
    let told = "the run failed inside the service after it had begun";
    assert_eq!(events[1]["result"], json!({ "error": told }));
    client.get(format!("{TREE}/exec/late-panic?follow=true")).refused(503, "disconnected");
}

// Whether it is promised is seen at the end, as of every answer.
fn each_kind_is_promised(server: &Server) {
    let client = &server.client;
    let kinds = [
        "not_found",
        "permission_denied",
        "is_directory",
        "not_a_directory",
        "not_empty",
        "already_exists",
        "stale",
        "too_large",
        "quota",
        "timeout",
        "disconnected",
        "invalid",
        "unsupported",
        "busy",
        "internal",
    ];
    for kind in kinds {
        let edits = json!({"path": kind, "edits": [{"old_string": "5", "new_string": "five"}]});
        for reply in [
            client.get(format!("{TREE}/stat?path={kind}")),
            client.get(format!("{TREE}/dir?path={kind}")),
            client.get(format!("{TREE}/files?path={kind}")),
            client.get(format!("{TREE}/content?path={kind}")),
            client.get(format!("{TREE}/raw/{kind}")),
            client.request("HEAD", format!("{TREE}/raw/{kind}")).send(),
            client.put(format!("{TREE}/raw/{kind}"), "x"),
            client.put(format!("{TREE}/edit?path={kind}&start=1"), "x"),
            client.post_json(format!("{TREE}/replace"), &edits),
            client.post_json(format!("{TREE}/mkdir"), &json!({"path": kind})),
            client.delete(format!("{TREE}/file?path={kind}")),
            client.delete(format!("{TREE}/raw/{kind}")),
            client.post_json(format!("{TREE}/exec"), &json!({"command": kind})),
            client.post_json(format!("{TREE}/execute?command={kind}"), &json!([])),
        ] {
            assert!(reply.status >= 400, "{kind}: {}", reply.status);
        }
    }
}

fn a_listing_is_sorted(server: &Server) {
    let client = &server.client;
    let listed = client.get(format!("{TREE}/dir?limit=9")).ok();
    let names: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "a", "z", "数据"]);
    // Directories without end are walked to a bound.
    client.get(format!("{TREE}/files")).refused(413, "too_large");
}

fn a_result_is_bounded(server: &Server) {
    let client = &server.client;
    let most = usize::try_from(
        client.get(format!("{TREE}/info")).ok()["data"]["runs"]["output_bytes"].as_u64().unwrap(),
    );
    let ran = client.post_json(format!("{TREE}/exec"), &json!({"command": "much"})).ok()["data"].clone();
    assert!(ran["stdout"].as_str().unwrap().len() < most.unwrap() + 100);
    assert_eq!((&ran["exit_code"], &ran["truncated"]), (&json!(255), &json!(true)));
    assert!(ran["signal"].as_str().unwrap().len() < 100);
    let events = client.stream_run(TREE, &json!({"command": "much", "exec_id": "much"}));
    let bytes: usize = events.filter_map(|event| Some(event["text"].as_str()?.len())).sum();
    assert_eq!(bytes, 16 << 20);
    let (sandbox, user) = (server.connected("hostile"), UserId::parse("victim").unwrap());
    let spec = ExecSpec { output_bytes_max: 64 << 20, ..ExecSpec::argv("much", [] as [&str; 0]) };
    let ran = server.runtime.block_on(sandbox.exec(&user, spec)).unwrap();
    assert!(
        ran.stdout.len() == 8 << 20 && ran.stdout_dropped_bytes >= 12 << 20,
        "{}",
        ran.stdout_dropped_bytes
    );
}

fn a_late_refusal_is_told(server: &Server) {
    let client = &server.client;
    client.post_json(format!("{TREE}/exec"), &json!({"command": "late"})).refused(404, "not_found");
    let named = json!({"command": "late", "exec_id": "named"});
    client.post_json(format!("{TREE}/exec"), &named).refused(404, "not_found");
    let events: Vec<Value> =
        client.stream_run(TREE, &json!({"command": "late", "exec_id": "late"})).collect();
    let words: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(words, ["started", "exit"]);
    assert_eq!(events[1]["result"], json!({"error": "nothing at /workspace"}));
    client.get(format!("{TREE}/exec/late?follow=true")).refused(503, "disconnected");
}

fn a_panic(server: &Server) {
    let client = &server.client;
    client.put(format!("{TREE}/raw/panic"), "x").refused(500, "internal");
    client.post_json(format!("{TREE}/exec"), &json!({"command": "panic"})).refused(500, "internal");
    for _ in 0..2 {
        let named = json!({"command": "panic", "exec_id": "again"});
        client.post_json(format!("{TREE}/exec"), &named).refused(500, "internal");
    }
    client.get(format!("{TREE}/exec/again")).refused(404, "not_found");
}
