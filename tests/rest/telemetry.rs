//! Spans: what a collector gets, what it never gets, and that no request waits for it.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Answer, Collector, Service, Settings, Told, digest, landlocked};

const TRACE: [u8; 16] = *b"\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36";
const CALLER: [u8; 8] = *b"\x00\xf0\x67\xaa\x0b\xa9\x02\xb7";
/// The two above as a caller sends them.
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The value of a figure without labels.
fn figure(service: &Service, name: &str) -> u64 {
    let text = String::from_utf8(service.client.get("/metrics").bytes(200).to_vec()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{name}` in {text}")).parse().unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_part_of(part: &Told, whole: &Told) -> bool {
    part.span.trace_id == whole.span.trace_id && part.span.parent_span_id == whole.span.span_id
}

/// An address at which no program listens.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_request_and_its_run_are_spans_in_the_trace_of_the_caller() {
    let collector = Collector::start(Answer::Taken);
    let service = Service::configured(&format!("{}service_name = \"技能 service\"\n", collector.config()));
    let client = &service.client;
    if !landlocked(client) {
        return;
    }
    let body = json!({ "command": "bash", "args": ["-c", "exit 3"] });
    let post = client.request("POST", "/v1/sandbox/u/a/exec").header("content-type", "application/json");
    post.header("traceparent", TRACEPARENT).header("x-request-id", "one").body(body.to_string()).send().ok();

    let request = collector.wait_for("one");
    let run = collector.wait(|told| is_part_of(told, &request));
    assert_eq!((&request.span.trace_id[..], &request.span.parent_span_id[..]), (&TRACE[..], &CALLER[..]));
    assert_eq!(request.span.name, "POST /v1/sandbox/{u}/{a}/exec");
    assert_eq!(request.text("http.request.method").as_deref(), Some("POST"));
    assert_eq!(request.text("http.route").as_deref(), Some("/v1/sandbox/{u}/{a}/exec"));
    assert_eq!(request.number("http.response.status_code"), Some(200));
    assert_eq!((request.text("error.type"), request.text("filesecbox.role")), (None, Some("admin".into())));
    assert_eq!((request.span.kind, run.span.kind), (2, 1), "the answering side, and within it");
    assert_eq!(
        (run.span.name.as_str(), run.text("process.executable.name")),
        ("run bash", Some("bash".into()))
    );
    assert_eq!(run.text("filesecbox.run.outcome").as_deref(), Some("exited"));
    assert!(["landlock", "namespaces"].contains(&run.text("filesecbox.run.tier").unwrap().as_str()));
    // A command that fails is a result.
    assert_eq!((&request.span.status, &run.span.status), (&None, &None));
    for told in [&request, &run] {
        assert!(told.span.start_time_unix_nano < told.span.end_time_unix_nano);
        assert_eq!(told.of_service("service.name").as_deref(), Some("技能 service"));
        assert_eq!(told.of_service("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }
    assert!(request.span.start_time_unix_nano <= run.span.start_time_unix_nano);
    assert!(run.span.end_time_unix_nano <= request.span.end_time_unix_nano);
}

#[test]
fn a_run_with_a_name_is_part_of_the_request_that_began_it() {
    let collector = Collector::start(Answer::Taken);
    let service = Service::configured(&collector.config());
    if !landlocked(&service.client) {
        return;
    }
    let body = json!({ "shell": "sleep 0.2", "exec_id": "mine" }).to_string();
    let post = service.client.request("POST", "/v1/sandbox/u/a/exec?background=true");
    let begun =
        post.header("content-type", "application/json").header("x-request-id", "begun").body(body).send();
    assert_eq!(begun.status, 201, "{:?}", begun.json());
    let request = collector.wait_for("begun");
    let run = collector.wait(|told| is_part_of(told, &request));
    assert!(request.span.parent_span_id.is_empty(), "the first of its trace");
    assert_eq!(run.text("process.executable.name").as_deref(), Some("bash"));
    assert_eq!(run.text("filesecbox.run.outcome").as_deref(), Some("succeeded"));
    assert!(run.span.end_time_unix_nano > request.span.end_time_unix_nano);

    let mut terminal =
        service.client.websocket("/v1/sandbox/u/a/terminal", "x-request-id: typed\r\n").expect("a WebSocket");
    terminal.type_in("exit 4\n");
    let request = collector.wait_for("typed");
    assert_eq!(request.number("http.response.status_code"), Some(101));
    let run = collector.wait(|told| is_part_of(told, &request));
    assert_eq!(run.text("filesecbox.run.outcome").as_deref(), Some("exited"));
}

#[test]
fn spans_have_no_user_path_argument_token_or_contents() {
    let collector = Collector::start(Answer::Taken);
    let token = format!(
        "[[tokens]]\nsha256 = \"{}\"\nrole = \"engine\"\nname = \"marked-name\"\n",
        digest("marked-token")
    );
    let service = Service::configured(&format!("{}{token}", collector.config()));
    let client = service.client.with_token("marked-token");
    let tree = "/v1/sandbox/marked-user/marked-agent";
    let marked = |method: &str, target: &str| {
        let request = client.request(method, target).header("traceparent", TRACEPARENT);
        request
            .header("tracestate", "marked=state")
            .header("baggage", "marked=baggage")
            .header("cookie", "marked")
    };
    marked("PUT", &format!("{tree}/edit?path=marked.md")).body("marked contents").send().ok();
    marked("GET", &format!("{tree}/raw/marked-missing.md")).send();
    marked("GET", "/v1/marked-route?marked=query").send();
    marked("GET", &format!("{tree}/files?marked=parameter")).send();
    client.with_token("marked-wrong").get(format!("{tree}/files"));
    let body = json!({
        "command": "bash",
        "args": ["-c", "echo marked-out; echo marked-err >&2; exit 7", "marked-argument"],
        "env": { "MARKED": "marked-value" },
        "stdin": "marked-input",
    });
    let posted = marked("POST", &format!("{tree}/exec")).header("content-type", "application/json");
    let ran = posted.header("x-request-id", "ran").body(body.to_string()).send();
    let refused = json!({ "command": "marked-program", "args": ["marked-argument"] }).to_string();
    marked("POST", &format!("{tree}/exec")).header("content-type", "application/json").body(refused).send();
    client.request("GET", "/healthz").header("x-request-id", "last").send();

    let request = collector.wait_for("ran");
    if ran.status == 200 {
        collector.wait(|told| is_part_of(told, &request));
    }
    collector.wait_for("last");
    let all = String::from_utf8_lossy(&collector.bytes()).to_ascii_lowercase();
    assert!(
        all.contains("/v1/sandbox/{u}/{a}/edit") && all.contains("engine"),
        "the control: something is told"
    );
    assert!(!all.contains("marked"), "{all}");
    assert!(!all.contains(service.root.to_str().unwrap()), "{all}");
    let failed =
        |code: &str| collector.spans().iter().any(|told| told.text("error.type").as_deref() == Some(code));
    assert!(failed("not_found") && failed("unauthenticated") && failed("invalid"));
    let of_no_route = collector.wait(|told| told.text("http.route").as_deref() == Some("none"));
    assert_eq!(of_no_route.number("http.response.status_code"), Some(404));
}

#[test]
fn the_caller_decides_about_its_trace_and_the_ratio_about_all_others() {
    let collector = Collector::start(Answer::Taken);
    let service = Service::configured(&format!("{}sample_ratio = 0\n", collector.config()));
    let ask = |id: &str, traceparents: &[&str]| {
        let request = service.client.request("GET", "/healthz").header("x-request-id", id);
        traceparents.iter().fold(request, |request, sent| request.header("traceparent", sent)).send().ok();
    };
    ask("none", &[]);
    ask("unsampled", &[&TRACEPARENT.replace("-01", "-00")]);
    for malformed in
        ["", "nonsense", &TRACEPARENT.to_uppercase(), &TRACEPARENT.replace("00-4", "ff-4"), "\u{e9}"]
    {
        ask("malformed", &[malformed]);
    }
    ask("twice", &[TRACEPARENT, TRACEPARENT]);
    ask("long", &[&format!("{TRACEPARENT}{}", "-x".repeat(10_000))]);
    ask("sampled", &[TRACEPARENT]);
    collector.wait_for("sampled");
    assert_eq!(collector.spans().len(), 1, "{:?}", collector.spans());
}

#[test]
fn a_malformed_parent_does_not_lose_the_span() {
    let collector = Collector::start(Answer::Taken);
    let service = Service::configured(&collector.config());
    let request = service.client.request("GET", "/healthz").header("traceparent", "nonsense");
    request.header("x-request-id", "one").send().ok();
    let told = collector.wait_for("one");
    assert!(told.span.parent_span_id.is_empty() && told.span.trace_id.len() == 16);
    assert_ne!(told.span.trace_id, [0; 16]);
}

#[test]
fn a_request_whose_caller_has_gone_is_a_span_all_the_same() {
    let collector = Collector::start(Answer::Taken);
    let service = Service::configured(&collector.config());
    if !landlocked(&service.client) {
        return;
    }
    let mut stream = service.client.connect();
    let body = "[\"-c\", \"echo > begun; sleep 1\"]";
    let head =
        "POST /v1/sandbox/u/a/execute?command=bash HTTP/1.1\r\nhost: localhost\r\nx-request-id: gone\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    until("the run begins", || service.client.get("/v1/sandbox/u/a/raw/begun").status == 200);
    drop(stream);
    let request = collector.wait_for("gone");
    assert_eq!(request.text("error.type").as_deref(), Some("unanswered"));
    assert_eq!(request.number("http.response.status_code"), None);
    let run = collector.wait(|told| is_part_of(told, &request));
    assert_eq!(run.text("filesecbox.run.outcome").as_deref(), Some("succeeded"), "it goes on");
}

#[test]
fn the_last_spans_are_sent_at_an_orderly_stop() {
    let collector = Collector::start(Answer::Taken);
    let mut service = Service::configured(&collector.config());
    for number in 0..20 {
        service.client.request("GET", "/healthz").header("x-request-id", format!("r{number}")).send().ok();
    }
    service.terminate();
    assert!(service.wait().success());
    assert_eq!(collector.spans().len(), 20);
}

#[test]
fn requests_go_on_while_the_collector_is_dead() {
    let service =
        Service::configured(&format!("[telemetry]\notlp_endpoint = \"http://{}\"\n", closed_port()));
    for number in 0..20 {
        service.client.write("/v1/sandbox/u/a", &format!("文件{number}"), "x");
    }
    until("drops are counted", || figure(&service, "filesecbox_spans_dropped_total") >= 20);
    assert_eq!(figure(&service, "filesecbox_spans_sent_total"), 0);
    assert_eq!(service.log().matches("spans are dropped").count(), 1, "told once: {}", service.log());
}

#[test]
fn nobody_waits_for_a_collector_that_never_answers() {
    let collector = Collector::start(Answer::Silence);
    let mut service = Service::configured(&format!("{}queue = 4\n", collector.config()));
    service.client.request("GET", "/healthz").header("x-request-id", "first").send().ok();
    collector.wait_for("first");
    // From here on the thread that sends waits for the answer, and no thread empties the queue. A request that waited
    // for room in it would have each span sent in the end: more are dropped than were ever sent.
    until("spans find no room", || {
        (0..20).for_each(|_| drop(service.client.get("/healthz").ok()));
        figure(&service, "filesecbox_spans_dropped_total") > collector.spans().len() as u64
    });
    let begin = Instant::now();
    service.terminate();
    assert!(service.wait().success());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn what_the_collector_does_not_take_is_counted_and_its_answers_lead_nowhere() {
    let elsewhere = Collector::start(Answer::Taken);
    let collector = Collector::start(Answer::Status(307, elsewhere.address));
    let env = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    let proxy = format!("http://{}", elsewhere.address);
    let env = env.into_iter().map(|name| (name.to_owned(), proxy.clone())).collect();
    let service = Service::with(Settings { config: Some(collector.config()), env, ..Settings::default() });
    service.client.get("/healthz").ok();
    until("a redirection is no success", || figure(&service, "filesecbox_spans_dropped_total") >= 1);
    collector.answer(Answer::Status(503, elsewhere.address));
    service.client.request("GET", "/healthz").header("x-request-id", "unavailable").send().ok();
    collector.wait_for("unavailable");
    assert_eq!(figure(&service, "filesecbox_spans_sent_total"), 0);
    // More than the batch has, as a collector that lies about it would say.
    collector.answer(Answer::Rejected(i64::MAX));
    service.client.request("GET", "/healthz").header("x-request-id", "rejected").send().ok();
    collector.wait_for("rejected");
    collector.answer(Answer::Rejected(-1));
    service.client.request("GET", "/healthz").header("x-request-id", "taken").send().ok();
    collector.wait_for("taken");
    until("it works again", || figure(&service, "filesecbox_spans_sent_total") >= 1);
    assert!(elsewhere.bytes().is_empty(), "neither a redirection nor a proxy of the environment is followed");
}

#[test]
fn nothing_is_sent_unless_the_configuration_says_where() {
    let collector = Collector::start(Answer::Taken);
    let names = |service: &Service| -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
        let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        threads.filter_map(Result::ok).map(name).collect()
    };
    let env = vec![("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{}", collector.address))];
    let mut service = Service::with(Settings { env, ..Settings::default() });
    service.client.request("GET", "/healthz").header("traceparent", TRACEPARENT).send().ok();
    assert!(!names(&service).iter().any(|name| name.trim() == "spans"));
    assert_eq!(figure(&service, "filesecbox_spans_dropped_total"), 0);
    service.terminate();
    assert!(service.wait().success());
    assert!(collector.bytes().is_empty());
    let sending = Service::configured(&collector.config());
    assert!(names(&sending).iter().any(|name| name.trim() == "spans"), "the control: it has a thread");
}
