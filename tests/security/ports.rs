//! Attacks by way of ports: of callers on what is not theirs, and of servers in sandboxes on their callers and the service.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::attack::Attack;
use crate::client::pace::paced;
use crate::client::{Client, encoded};
use crate::expectation::Finding;
use crate::host::growth;
use crate::scene::{Scene, workspace_of};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("reaching_a_port_of_another", ports_of_others),
    Attack::driven("reaching_the_host_through_a_port", the_host),
    Attack::driven("using_a_link_for_something_else", using_a_link),
    Attack::driven("smuggling_a_request_past_a_port", smuggling),
    Attack::driven("taking_the_callers_token_at_a_port", taking_tokens),
    Attack::driven("speaking_for_the_origin_from_a_port", speaking_for_the_origin),
    Attack::driven("leading_a_caller_out_of_a_port", leading_out),
    Attack::driven("answering_twice_at_a_port", answering_twice),
    Attack::driven("holding_every_connection_to_ports", holding).alone(),
    Attack::driven("filling_the_memory_from_a_port", filling_the_memory).alone(),
];

const SERVER: &str = include_str!("payloads/ports.py");
const PATIENCE: Duration = Duration::from_secs(20);
/// More connections than one user may have.
const CONNECTIONS: usize = 120;
/// The memory that answers on their way may take, with the connections themselves.
const GROWTH_BYTES: u64 = 48 * 1024 * 1024;

/// A server in a workspace.
struct Server<'a> {
    scene: &'a Scene<'a>,
    tree: String,
    port: u16,
}

impl<'a> Server<'a> {
    fn of(scene: &'a Scene<'a>, tree: String, port: u16) -> Self {
        let server = Self { scene, tree, port };
        let client = scene.client();
        client.delete(format!("{}/file?path=seen", server.tree));
        client.delete(format!("{}/file?path=listens", server.tree));
        scene.put(&server.tree, "ports.py", SERVER);
        let run = json!({"command": "python3", "args": ["ports.py", port.to_string(), scene.user]});
        let begun = client.post_json(format!("{}/exec?background=true", server.tree), &run);
        assert_eq!(begun.status, 201, "{}", begun.json());
        let since = Instant::now();
        while client.get(format!("{}/stat?path=listens", server.tree)).status != 200 {
            assert!(since.elapsed() < paced(PATIENCE), "the server never listened");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(server.get("").body, b"the server", "the control");
        server
    }

    /// The attacker's.
    fn own(scene: &'a Scene<'a>) -> Self {
        Self::of(scene, scene.workspace(), 8000)
    }

    fn at(&self, rest: &str) -> String {
        format!("{}/ports/{}/{rest}", self.tree, self.port)
    }

    fn get(&self, rest: &str) -> crate::client::Reply {
        self.scene.client().get(self.at(rest))
    }

    fn link(&self, port: u16) -> String {
        let made =
            self.scene.client().post_json(format!("{}/ports", self.tree), &json!({ "port": port })).ok();
        made["data"].as_str().unwrap().to_owned()
    }

    /// The requests that the server has got since it was asked last.
    fn seen(&self) -> Vec<String> {
        // The server notes a request when nothing more of it comes.
        std::thread::sleep(Duration::from_millis(500));
        let reply = self.scene.client().get(format!("{}/raw/seen", self.tree));
        self.scene.client().delete(format!("{}/file?path=seen", self.tree));
        if reply.status != 200 {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(reply.bytes(200)).into_owned();
        text.split("BEGIN").skip(1).map(|one| one.split("END\n").next().unwrap().to_owned()).collect()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The service is gone, as in a stage that kills it.
            return;
        }
        let client = self.scene.client();
        let runs = client.get(format!("{}/exec", self.tree)).ok()["data"].clone();
        for run in runs.as_array().into_iter().flatten().filter(|run| run["state"] == "running") {
            client.delete(format!("{}/exec/{}", self.tree, run["exec_id"].as_str().unwrap()));
        }
    }
}

/// A client without a token, as a browser with a link is one.
fn stranger(scene: &Scene<'_>) -> Client {
    Client { token: None, ..scene.client().clone() }
}

/// Sends bytes as they are and reads what comes back, for a short while.
fn raw(scene: &Scene<'_>, bytes: &[u8]) -> Vec<u8> {
    let mut stream = scene.client().connect();
    let _ = stream.write_all(bytes);
    // To stop sending would end a request without a body before it reaches the server.
    stream.set_read_timeout(Some(paced(Duration::from_millis(500)))).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn through(told: impl Into<String>) -> Finding {
    Finding::Through(told.into())
}

fn ports_of_others(scene: &Scene<'_>) -> Finding {
    let control = scene.control();
    let other_agent = format!("/v1/sandbox/{}/other-agent", encoded(&scene.user));
    let servers = [Server::of(&control, control.workspace(), 8001), Server::of(scene, other_agent, 8002)];
    let (own, client) = (scene.workspace(), scene.client());
    // So that the attacker has networks, too.
    scene.exec(&own, &json!({"command": "ls"}));
    for server in &servers {
        for path in [
            format!("{own}/ports/{}/", server.port),
            format!("{own}/ports/{}/../../../../../{}", server.port, server.at("")),
            format!("{own}/ports/../../{}/ports/{}/", encoded(&server.scene.user), server.port),
            format!("{}/ports/{}/", scene.skill(), server.port),
            format!("/v1/ports/{}/", server.port),
        ] {
            let reply = client.get(&path);
            if reply.status < 300 || String::from_utf8_lossy(&reply.body).contains("the server") {
                return through(format!("{path}: {}", reply.status));
            }
        }
        let made = client.post_json(format!("{own}/ports"), &json!({ "port": server.port })).ok();
        if stranger(scene).get(made["data"].as_str().unwrap()).status == 200 {
            return through("by a link to the same port of the attacker's");
        }
        let listed = client.get(format!("{own}/ports")).ok()["data"].to_string();
        if listed.contains(&server.port.to_string()) {
            return through(listed);
        }
    }
    Finding::Stopped
}

/// A listener of the host, the service itself, and the egress proxy, in every spelling of a port.
fn the_host(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return Finding::Skipped("needs a listener on the host of the service".into());
    }
    let server = Server::own(scene);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (of_host, of_service) = (listener.local_addr().unwrap().port(), scene.client().address.port());
    let mut answers = Vec::new();
    for port in [of_host, of_service, 3128, 22, 80] {
        for name in [
            format!("{port}"),
            format!("0{port}"),
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            format!("8000@127.0.0.1:{port}"),
            format!("8000%23@127.0.0.1:{port}"),
            format!("%5B::1%5D:{port}"),
            format!("{}", u32::from(port) + 65_536),
            format!("-{}", 65_536 - u32::from(port)),
        ] {
            answers.push(scene.client().get(format!("{}/ports/{name}/healthz", server.tree)));
        }
    }
    // By the path, by an absolute target, and by the host of a request to one's own port.
    let token = scene.client().token.clone().unwrap_or_default();
    for port in [of_host, of_service] {
        answers.push(server.get(&format!("http://127.0.0.1:{port}/healthz")));
        answers.push(server.get(&format!("//127.0.0.1:{port}/healthz")));
        for head in [
            format!(
                "GET http://127.0.0.1:{port}{} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n",
                server.at("healthz")
            ),
            format!(
                "GET {} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-forwarded-host: 127.0.0.1:{port}\r\n",
                server.at("healthz")
            ),
            format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"),
        ] {
            let answer = raw(
                scene,
                format!("{head}authorization: Bearer {token}\r\nconnection: close\r\n\r\n").as_bytes(),
            );
            if String::from_utf8_lossy(&answer).contains("\"ok\"") {
                return through(format!("{head:?} got to the service"));
            }
        }
    }
    if let Some(reply) = answers.iter().find(|reply| String::from_utf8_lossy(&reply.body).contains("\"ok\""))
    {
        return through(format!("the service answered: {reply:?}"));
    }
    match listener.accept() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Finding::Stopped,
        _ => through("the host was reached"),
    }
}

fn using_a_link(scene: &Scene<'_>) -> Finding {
    let (server, other) =
        (Server::own(scene), Server::of(scene, format!("/v1/sandbox/{}/third", encoded(&scene.user)), 8000));
    let stranger = stranger(scene);
    let link = server.link(8000);
    assert_eq!(stranger.get(&link).body, b"the server", "the control");
    let token = link.trim_start_matches("/v1/ports/").trim_end_matches('/').to_owned();
    let bearer = stranger.with_token(&token);
    for path in ["/files", "/ports", "/ports/8000/"] {
        if bearer.get(format!("{}{path}", server.tree)).status != 401 {
            return through(format!("the link is a token for {path}"));
        }
    }
    // Claims changed, the signature of another's, cut, doubled.
    let parts: Vec<&str> = token.split('.').collect();
    let of_other = other.link(8000);
    let others: Vec<&str> =
        of_other.trim_start_matches("/v1/ports/").trim_end_matches('/').split('.').collect();
    let forged = [
        [parts[0], parts[1], others[2], parts[3]].join("."),
        [parts[0], parts[1], parts[2], others[3]].join("."),
        [parts[0], parts[1], parts[2], ""].join("."),
        [parts[0], "", parts[2], parts[3]].join("."),
        format!("{token}."),
        format!("{token}%00"),
        "fsbp1.x.e30.AAAA".to_owned(),
    ];
    for token in forged {
        let status = stranger.get(format!("/v1/ports/{token}/")).status;
        if status != 401 && status != 404 && status != 400 {
            return through(format!("{token}: {status}"));
        }
    }
    Finding::Stopped
}

/// Requests that two readers understand differently, and heads with more in them than they say.
fn smuggling(scene: &Scene<'_>) -> Finding {
    let server = Server::own(scene);
    server.seen();
    let (at, token) = (server.at("x"), scene.client().token.clone().unwrap_or_default());
    let head = format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
    let inner = "GET /smuggled HTTP/1.1\r\nhost: evil\r\n\r\n";
    let post = |more: &str, body: &str| format!("POST {at} HTTP/1.1\r\n{head}{more}\r\n{body}");
    let get =
        |target: &str, more: &str| format!("GET {target} HTTP/1.1\r\n{head}connection: close\r\n{more}\r\n");
    let requests = [
        post("content-length: 0\r\ntransfer-encoding: chunked\r\nx: y\r\n", &format!("0\r\n\r\n{inner}")),
        post(
            &format!("content-length: {}\r\ntransfer-encoding: chunked\r\n", inner.len() + 5),
            &format!("0\r\n\r\n{inner}"),
        ),
        post("content-length: 0\r\ncontent-length: 40\r\n", inner),
        post("content-length: +0\r\n", inner),
        post("content-length: 0, 40\r\n", inner),
        post("transfer-encoding: chunked, identity\r\n", &format!("0\r\n\r\n{inner}")),
        post("transfer-encoding: xchunked\r\n", &format!("0\r\n\r\n{inner}")),
        post("transfer-encoding : chunked\r\n", &format!("0\r\n\r\n{inner}")),
        post("transfer-encoding: chunked\r\nconnection: transfer-encoding\r\n", &format!("0\r\n\r\n{inner}")),
        post("content-length: 0\r\nconnection: content-length\r\n", inner),
        post("transfer-encoding: chunked\r\n", &format!("0\r\nx-injected: trailer\r\n\r\n{inner}")),
        get(&format!("{at}%0d%0ax-injected:%20path"), ""),
        get(&format!("{at}?%0d%0ax-injected:%20query"), ""),
        get(&format!("{at}?a b HTTP/1.1\r\nx-injected: target\r\nx: "), ""),
        get(&at, "x-app-own: a\rx-injected: return\r\n"),
        get(&at, "x-app-own: a\nx-injected: line\r\n"),
        get(&at, "x-app-own: a\r\n x-injected: folded\r\n"),
        get(&at, "x-app-own: a\0x-injected: nothing\r\n"),
        get(&at, "connection: host, x-forwarded-host, x-forwarded-prefix, origin\r\n"),
        get(
            &at,
            "x-forwarded-host: x-injected\r\nx-forwarded-prefix: x-injected\r\nforwarded: x-injected\r\n",
        ),
        get(&at, "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: x-injected\r\n"),
        get(&at, "expect: 100-continue, x-injected\r\n"),
    ];
    for request in &requests {
        raw(scene, request.as_bytes());
    }
    let seen = server.seen();
    let arrived = |method: &str| seen.iter().filter(|one| one.starts_with(method)).count();
    assert!(arrived("GET ") >= 5 && arrived("POST ") >= 3, "the control: {seen:?}");
    for one in seen.iter().filter(|one| !one.is_empty()) {
        let (first, rest) = one.split_once("\r\n").unwrap_or((one, ""));
        let fields = rest.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
        let count =
            |name: &str| fields.split("\r\n").filter(|line| line.starts_with(&format!("{name}:"))).count();
        let is_injected = fields.contains("x-injected") && !fields.contains("x-app-own");
        if one.contains("GET /smuggled") && !first.starts_with("POST /x ")
            || first.starts_with("GET /smuggled")
            || is_injected
            || one.to_ascii_lowercase().contains("\nx-injected")
            || count("host") != 1
            || !fields.contains("host: localhost:8000")
            || count("content-length") + count("transfer-encoding") > 1
            || fields.contains("h2c")
        {
            return through(one.clone());
        }
    }
    Finding::Stopped
}

fn taking_tokens(scene: &Scene<'_>) -> Finding {
    let server = Server::own(scene);
    server.seen();
    let (client, secret) = (scene.client(), format!("{}-cookie", scene.canary()));
    let link = server.link(8000);
    let link_token = link.trim_start_matches("/v1/ports/").trim_end_matches('/').to_owned();
    for (client, target) in [(client.clone(), server.at("x")), (stranger(scene), format!("{link}x"))] {
        for method in ["GET", "POST", "OPTIONS", "TRACE"] {
            let request = client
                .request(method, &target)
                .header("cookie", format!("session={secret}"))
                .header("referer", format!("http://{}{link}", client.address))
                .header("proxy-authorization", format!("Basic {secret}"))
                .header("x-forwarded-access-token", &secret)
                .header("cf-access-jwt-assertion", &secret)
                .header("origin", format!("http://{}", client.address));
            request.send();
        }
        // An upgrade, once with the names of what is not to be passed on in `Connection`, which takes them out by itself.
        for named in ["upgrade", "upgrade, authorization, cookie"] {
            let head = format!(
                "GET {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncookie: {secret}\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\
                 upgrade: websocket\r\nconnection: {named}\r\n\r\n",
                client.address,
                scene.client().token.as_deref().unwrap_or_default(),
            );
            raw(scene, head.as_bytes());
        }
    }
    let seen = server.seen().join("\n");
    assert!(seen.contains("GET /x HTTP/1.1") && seen.contains("POST /x HTTP/1.1"), "the control: {seen}");
    assert!(seen.to_ascii_lowercase().contains("sec-websocket-key"), "the control: an upgrade: {seen}");
    if let Some(loot) = scene.loot_in(&seen) {
        return through(loot);
    }
    if seen.contains(&link_token) { through("the link's token") } else { Finding::Stopped }
}

/// What no answer of a server may bring, but from the service itself by a link: that pages may read it.
const OF_THE_ORIGIN: [&str; 20] = [
    "set-cookie",
    "set-cookie2",
    "clear-site-data",
    "service-worker-allowed",
    "strict-transport-security",
    "access-control-allow-credentials",
    "www-authenticate",
    "proxy-authenticate",
    "alt-svc",
    "x-accel-redirect",
    "x-sendfile",
    "refresh",
    "report-to",
    "nel",
    "reporting-endpoints",
    "public-key-pins",
    "content-security-policy-report-only",
    "upgrade",
    "location",
    "link",
];

fn speaking_for_the_origin(scene: &Scene<'_>) -> Finding {
    let server = Server::own(scene);
    let link = server.link(8000);
    for (client, base) in [(scene.client().clone(), server.at("")), (stranger(scene), link)] {
        for status in [200, 201, 203, 206, 302, 304, 400, 401, 404, 407, 500, 503, 101, 199, 600, 999] {
            let reply = client.get(format!("{base}status/{status}"));
            let told = |what: &str| through(format!("{base} {status}: {what} {:?}", reply.headers));
            if let Some(name) = OF_THE_ORIGIN.iter().find(|name| reply.header(name).is_some()) {
                return told(name);
            }
            if reply.header("access-control-allow-origin").is_some_and(|origin| origin != "*") {
                return told("access-control-allow-origin");
            }
            assert!(status != 200 || reply.status == 200, "the control: {}", reply.status);
            let is_passed_on = reply.header("content-type").is_none_or(|kind| kind != "application/json");
            let policies = reply.headers.iter().filter(|(name, _)| name == "content-security-policy");
            let is_boxed = policies
                .clone()
                .any(|(_, policy)| policy.starts_with("sandbox ") && !policy.contains("same-origin"));
            if is_passed_on && (!is_boxed || reply.header("x-content-type-options") != Some("nosniff")) {
                return told("no sandbox");
            }
            let caching = reply.header("cache-control").unwrap_or_default();
            if is_passed_on && (!caching.starts_with("private") || caching.contains("maxage")) {
                return told("cache-control");
            }
            if matches!(status, 101 | 199 | 600 | 999) && reply.status < 500 {
                return told("a status that is none");
            }
        }
    }
    Finding::Stopped
}

/// A caller that follows redirects with its token in hand.
fn leading_out(scene: &Scene<'_>) -> Finding {
    let server = Server::own(scene);
    let own = scene.client().address;
    let prefix = format!("{}/ports/8000/", server.tree);
    let followed = |location: &str| {
        server.get(&format!("to/{}", hex::encode(location))).header("location").map(str::to_owned)
    };
    assert_eq!(followed("/x").as_deref(), Some(format!("{prefix}x").as_str()), "the control");
    for location in [
        format!("http://{own}/v1/sandbox"),
        format!("//{own}/v1/sandbox"),
        format!("/\\{own}/v1/sandbox"),
        format!("http:{own}/v1"),
        format!("HTTP://{own}/"),
        "http://localhost:8000@evil.example/".to_owned(),
        "http://localhost:8000.evil.example/".to_owned(),
        "../../exec".to_owned(),
        "../../../../../../v1/tokens".to_owned(),
        "/../../exec".to_owned(),
        "/%2e%2e/%2E%2E/exec".to_owned(),
        "x/../../../exec".to_owned(),
        "http://localhost:8000/../../exec".to_owned(),
        "javascript:alert(1)".to_owned(),
        "data:text/html,x".to_owned(),
        "\t//evil.example".to_owned(),
        " //evil.example".to_owned(),
    ] {
        if let Some(led) = followed(&location)
            && (!led.starts_with(&prefix) || led.to_ascii_lowercase().replace("%2e", ".").contains(".."))
        {
            return through(format!("{location} became {led}"));
        }
    }
    Finding::Stopped
}

/// A second answer on a connection must not become another request's.
fn answering_twice(scene: &Scene<'_>) -> Finding {
    let server = Server::own(scene);
    let client = scene.client();
    let head = |target: &str| {
        format!(
            "GET {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            client.address,
            client.token.as_deref().unwrap_or_default()
        )
    };
    // Two requests of one caller on one connection, of which the server answers the first twice.
    let both = format!("{}{}", head(&server.at("two")), head("/healthz"));
    // To stop sending would end the connection before the second is answered.
    let mut stream = client.connect();
    stream.write_all(both.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains("own"), "the control: {answer}");
    if answer.contains("evil") || !answer.contains("\"ok\"") { through(answer) } else { Finding::Stopped }
}

/// The attacker's server answers nothing, and the attacker asks it as often as it can.
fn holding(scene: &Scene<'_>) -> Finding {
    let server = Server::own(scene);
    let control = scene.control();
    let bystander = Server::of(&control, workspace_of(&control.user), 8001);
    let held: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = scene.client().connect();
            let head = format!(
                "GET {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
                server.at("hold"),
                scene.client().token.as_deref().unwrap_or_default()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let served = bystander.get("");
    let is_well = scene.client().get("/healthz").status == 200;
    let took = begun.elapsed();
    drop(held);
    if served.body == b"the server" && is_well && took < Duration::from_secs(5) {
        Finding::Stopped
    } else {
        through(format!("another user's port: {} after {took:?}", served.status))
    }
}

/// Answers without end that no caller takes, and heads without end.
fn filling_the_memory(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs the memory of the service's process".into());
    };
    let server = Server::own(scene);
    let grown = growth(host.service(), || {
        let held: Vec<TcpStream> = (0..40)
            .map(|number| {
                let mut stream = scene.client().connect();
                let path = if number % 2 == 0 { "endless" } else { "head" };
                let head = format!(
                    "GET {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
                    server.at(path),
                    scene.client().token.as_deref().unwrap_or_default()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream
            })
            .collect();
        std::thread::sleep(Duration::from_secs(3));
        drop(held);
    });
    if grown > GROWTH_BYTES {
        through(format!("the service grew by {grown} bytes"))
    } else {
        Finding::Stopped
    }
}
