//! Ports: what commands serve is listed, and reached through the service with all that HTTP can do.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Client, Message, Reply, Service, Settings, digest, granted, skill, skill_zip, skills, workspace,
};

/// A server that tells what it was asked, streams, and takes WebSockets.
const SERVER: &str = r#"
import base64, hashlib, http.server, json, sys, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *args): pass
    def answer(self, body, kind='application/json', **headers):
        self.send_response(int(headers.pop('status', 200)))
        for name, value in headers.items(): self.send_header(name.replace('_', '-'), value)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(body)
    def handle_any(self):
        if self.path == '/page':
            return self.answer(b'<h1>page</h1>', 'text/html', Set_Cookie='a=b; Path=/', Service_Worker_Allowed='/',
                Access_Control_Allow_Origin='*', Cache_Control='public, max-age=5', ETag='"tag"',
                Clear_Site_Data='"*"', X_Accel_Redirect='/etc/passwd')
        if self.path == '/redirect': return self.answer(b'', status=307, Location='/page?x')
        if self.path == '/away': return self.answer(b'', status=302, Location='../../exec')
        if self.path == '/silent': time.sleep(20)
        if self.path == '/stall':
            self.send_response(200); self.send_header('Content-Length', '10'); self.end_headers()
            self.wfile.write(b'half-'); self.wfile.flush(); time.sleep(20)
        if self.path == '/broken':
            self.send_response(200); self.send_header('Content-Length', '10'); self.end_headers()
            self.wfile.write(b'half-'); self.close_connection = True; return
        if self.path == '/none': self.close_connection = True; return
        if self.path == '/garbage': self.wfile.write(b'no HTTP\r\n\r\n'); self.close_connection = True; return
        if self.path == '/huge':
            self.send_response(200); self.send_header('X-Huge', 'x' * 200000); self.end_headers(); self.close_connection = True; return
        if self.path == '/events':
            self.send_response(200); self.send_header('Content-Type', 'text/event-stream')
            self.send_header('Transfer-Encoding', 'chunked'); self.end_headers()
            for number in range(3):
                piece = f'data: {number}\n\n'.encode()
                self.wfile.write(f'{len(piece):x}\r\n'.encode() + piece + b'\r\n'); self.wfile.flush(); time.sleep(0.3)
            self.wfile.write(b'0\r\n\r\n'); return
        if self.headers.get('Upgrade') == 'websocket':
            key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
            self.send_response(101); self.send_header('Upgrade', 'websocket'); self.send_header('Connection', 'Upgrade')
            self.send_header('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            while True:
                head = self.rfile.read(2)
                if len(head) < 2: return
                data = self.rfile.read(4 + (head[1] & 127))[4:]
                if head[0] & 15 == 8: return
                self.wfile.write(bytes([0x82, len(data)]) + data[::-1]); self.wfile.flush()
        length, chunked = self.headers.get('Content-Length'), self.headers.get('Transfer-Encoding')
        if chunked:
            body = b''
            while (size := int(self.rfile.readline(), 16)):
                body += self.rfile.read(size); self.rfile.readline()
            self.rfile.readline()
        else: body = self.rfile.read(int(length or 0))
        told = {'method': self.command, 'path': self.path, 'headers': {k.lower(): v for k, v in self.headers.items()},
                'bytes': len(body), 'digest': hashlib.sha256(body).hexdigest()}
        self.answer(json.dumps(told).encode())
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = do_PROPFIND = handle_any
server = http.server.ThreadingHTTPServer((sys.argv[2] if len(sys.argv) > 2 else '127.0.0.1', int(sys.argv[1])), Handler)
server.serve_forever()
"#;

/// Does `law` with a service of each tier at which ports are to be had, and the name of that tier.
fn at_each_tier(config: &str, law: impl Fn(&Service, &str)) {
    for (isolation, tier) in [("", "namespaces"), ("[isolation]\nmaximum = \"landlock\"\n", "landlock")] {
        let service = Service::with(Settings {
            config: Some(format!("{isolation}{config}")),
            env: vec![("FILESECBOX_LOG".to_owned(), "debug".to_owned())],
            ..Settings::default()
        });
        law(&service, tier);
    }
}

/// Tells whether commands of the service run at `tier`; the law is skipped loudly elsewhere.
fn reaches(client: &Client, tier: &str) -> bool {
    let info = client.get("/v1/info").ok();
    granted(tier, info["data"]["host"]["enforcement"]["tier"] == tier)
}

/// Starts the server in the background and waits until it listens.
fn serve(client: &Client, tree: &str, port: u16, network: &str) {
    client.write(tree, "server.py", SERVER);
    let run = json!({"command": "python3", "args": ["server.py", port.to_string()], "exec_id": format!("server-{port}"),
        "network": network});
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &run).status, 201);
    let begun = Instant::now();
    let listens = || {
        client.get(format!("{tree}/ports")).ok()["data"].to_string().contains(&format!("\"port\":{port},"))
    };
    while !listens() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", client.get(format!("{tree}/exec")).ok());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_listens_is_listed_with_its_run() {
    at_each_tier("", |service, tier| {
        if !reaches(&service.client, tier) {
            return;
        }
        let (client, tree) = (&service.client, workspace("张三", "a"));
        assert_eq!(client.get(format!("{tree}/ports")).ok()["data"], json!([]));
        serve(client, &tree, 8001, "none");
        client.upload(&skills("张三", "a"), "overlay", &skill_zip("s", &[]));
        let in_skill = skill("张三", "a", "s");
        serve(client, &in_skill, 8002, "none");
        let listed = |port: u16, tree: &str| {
            json!({"port": port, "protocol": "tcp", "address": "127.0.0.1", "network": "none", "program": "python3",
            "exec_id": format!("server-{port}"), "tree": tree})
        };
        let expected = json!([listed(8001, "/workspace"), listed(8002, "/workspace/skills/s")]);
        for place in [&tree, &in_skill] {
            assert_eq!(client.get(format!("{place}/ports")).ok()["data"], expected);
        }
        for other in [workspace("张三", "b"), workspace("李四", "a")] {
            assert_eq!(client.get(format!("{other}/ports")).ok()["data"], json!([]));
            client.get(format!("{other}/ports/8001/")).refused(404, "not_found");
        }
        // It ends with its run.
        client.delete(format!("{tree}/exec/server-8001")).ok();
        assert_eq!(
            client.get(format!("{tree}/ports")).ok()["data"],
            json!([listed(8002, "/workspace/skills/s")])
        );
        client.get(format!("{tree}/ports/8001/")).refused(404, "not_found");
        assert_eq!(client.get(format!("{tree}/ports/8002/x")).json()["path"], "/x");
    });
}

#[test]
fn a_server_of_one_run_is_reached_by_another_also_with_curl_and_the_proxy_configured() {
    at_each_tier("", |service, tier| {
        if !reaches(&service.client, tier) {
            return;
        }
        let (client, tree) = (&service.client, workspace("u", "a"));
        let background =
            json!({"shell": "echo served > f.txt; python3 -m http.server 8000", "exec_id": "web"});
        assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &background).status, 201);
        let line = "for i in $(seq 100); do curl -sf localhost:8000/f.txt && break; sleep 0.1; done";
        let run = client.post_json(format!("{tree}/exec"), &json!({"shell": line})).ok();
        assert_eq!(run["data"]["stdout"], "served\n", "{run}");
        // And in the same run.
        let line = "python3 -m http.server 8001 >/dev/null 2>&1 & \
                for i in $(seq 100); do curl -sf localhost:8001/f.txt && break; sleep 0.1; done";
        let run = client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
        assert_eq!(run["data"]["stdout"], "served\n", "{run}");
        let reply = client.get(format!("{tree}/ports/8000/f.txt"));
        assert_eq!(reply.bytes(200), b"served\n");
    });
}

fn asked(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    serde_json::from_slice(&reply.body).unwrap()
}

#[test]
fn every_method_path_and_body_reaches_the_server_as_it_was_sent() {
    at_each_tier("", |service, tier| {
        if !reaches(&service.client, tier) {
            return;
        }
        let (client, tree) = (&service.client, workspace("u", "a"));
        serve(client, &tree, 8000, "none");
        let base = format!("{tree}/ports/8000");
        for (method, path) in [
            ("GET", "/"),
            ("DELETE", "/a%2Fb//c/../d?x=%20&y=/&cursor=1"),
            ("PUT", "/%E6%95%B0/%2e%2e/"),
            ("PATCH", "/link"),
            ("OPTIONS", "/"),
            ("PROPFIND", "/?"),
        ] {
            let told = asked(&client.request(method, format!("{base}{path}")).send());
            assert_eq!((&told["method"], &told["path"]), (&json!(method), &json!(path)));
        }
        let reply = client.request("HEAD", format!("{base}/page")).send();
        assert_eq!((reply.status, reply.body.len(), reply.header("content-length")), (200, 0, Some("13")));
        // Whole and chunked, small and larger than any buffer.
        let large: Vec<u8> = (0..3_000_000u32).map(|byte| byte as u8).collect();
        let told = asked(&client.post(format!("{base}/x"), &large));
        assert_eq!((&told["bytes"], &told["digest"]), (&json!(large.len()), &json!(digest_of(&large))));
        let chunked = format!("{:x}\r\n", large.len()).into_bytes();
        let chunked = [chunked, large.clone(), b"\r\n0\r\n\r\n".to_vec()].concat();
        let told = asked(
            &client
                .request("POST", format!("{base}/x"))
                .header("transfer-encoding", "chunked")
                .body(chunked)
                .send(),
        );
        assert_eq!((&told["bytes"], &told["digest"]), (&json!(large.len()), &json!(digest_of(&large))));
    });
}

fn digest_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex::encode(sha2::Sha256::digest(bytes))
}

#[test]
fn the_server_learns_nothing_of_the_caller_and_its_page_is_nobodys() {
    let config = format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"engine\"\n", digest("the secret token"));
    at_each_tier(&config, |service, tier| {
        let client = &service.client.with_token("the secret token");
        if !reaches(client, tier) {
            return;
        }
        let tree = workspace("u", "a");
        serve(client, &tree, 8000, "none");
        let reply = client
            .request("GET", format!("{tree}/ports/8000/x"))
            .header("cookie", "session=the secret token")
            .header("x-forwarded-for", "10.1.2.3")
            .header("x-app-own", "kept")
            .send();
        let headers = asked(&reply)["headers"].clone();
        let expected = json!({"host": "localhost:8000", "x-app-own": "kept", "x-forwarded-host": client.address.to_string(),
        "x-forwarded-proto": "http", "x-forwarded-prefix": format!("{tree}/ports/8000")});
        assert_eq!(headers, expected);

        let page = client.get(format!("{tree}/ports/8000/page"));
        assert_eq!(page.bytes(200), b"<h1>page</h1>");
        for absent in [
            "set-cookie",
            "service-worker-allowed",
            "access-control-allow-origin",
            "clear-site-data",
            "x-accel-redirect",
        ] {
            assert_eq!(page.header(absent), None, "{absent}");
        }
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("sandbox ") && !policy.contains("same-origin"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("cache-control"), Some("private, max-age=5"));
        assert_eq!(page.header("etag"), Some("\"tag\""));
        let moved = client.get(format!("{tree}/ports/8000/redirect"));
        assert_eq!(
            (moved.status, moved.header("location")),
            (307, Some(format!("{tree}/ports/8000/page?x").as_str()))
        );
        assert_eq!(client.get(format!("{tree}/ports/8000/away")).header("location"), None);
        let worker =
            client.request("GET", format!("{tree}/ports/8000/x")).header("service-worker", "script").send();
        worker.refused(403, "denied");
    });
}

#[test]
fn events_come_as_they_are_sent_and_a_websocket_carries_both_ways() {
    at_each_tier("", |service, tier| {
        if !reaches(&service.client, tier) {
            return;
        }
        let (client, tree) = (&service.client, workspace("u", "a"));
        serve(client, &tree, 8000, "proxy");
        let mut stream = client.connect();
        let head = format!("GET {tree}/ports/8000/events HTTP/1.1\r\nhost: {}\r\n\r\n", client.address);
        stream.write_all(head.as_bytes()).unwrap();
        let (mut lines, begun) = (BufReader::new(stream).lines(), Instant::now());
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let line = lines.next().unwrap().unwrap();
            if let Some(number) = line.strip_prefix("data: ") {
                seen.push((number.to_owned(), begun.elapsed()));
            }
        }
        assert_eq!(seen.iter().map(|(number, _)| number.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
        // Each by itself: the last comes more than half a second after the first.
        assert!(seen[2].1 - seen[0].1 > Duration::from_millis(400), "{seen:?}");

        let mut socket = client.websocket(&format!("{tree}/ports/8000/ws"), "").expect("a WebSocket");
        for text in ["hello", "更多", &"x".repeat(100)] {
            socket.type_in(text);
            let expected: Vec<u8> = text.bytes().rev().collect();
            assert_eq!(socket.next(), Message::Binary(expected));
        }
        // The server's end is the connection's.
        client.delete(format!("{tree}/exec/server-8000")).ok();
        assert_eq!(socket.next(), Message::Close);
    });
}

#[test]
fn a_server_that_is_slow_or_breaks_off_is_told_apart_from_one_that_answers() {
    at_each_tier(
        "[limits.ports]\nhead_ms = 1000\nidle_ms = 1000\nconnections_per_user = 4\n",
        |service, tier| {
            if !reaches(&service.client, tier) {
                return;
            }
            let (client, tree) = (&service.client, workspace("u", "a"));
            serve(client, &tree, 8000, "none");
            let base = format!("{tree}/ports/8000");
            let begun = Instant::now();
            client.get(format!("{base}/silent")).refused(504, "timeout");
            for path in ["none", "garbage", "huge"] {
                client.get(format!("{base}/{path}")).refused(503, "disconnected");
            }
            // The head has gone out: the answer ends before its length.
            for path in ["stall", "broken"] {
                let reply = client.get(format!("{base}/{path}"));
                assert_eq!(
                    (reply.status, reply.header("content-length"), reply.body.as_slice()),
                    (200, Some("10"), &b"half-"[..])
                );
            }
            assert!(begun.elapsed() < Duration::from_secs(15));
            for port in ["1", "3128"] {
                client.get(format!("{tree}/ports/{port}/")).refused(404, "not_found");
            }
            for port in ["0", "65536", "x", "80:80", "127.0.0.1:80", "%38000"] {
                client.get(format!("{tree}/ports/{port}/")).refused(400, "invalid");
            }
            // A connection that a WebSocket holds in silence is closed, and its place is free.
            let mut held: Vec<_> =
                (0..4).map(|_| client.websocket(&format!("{base}/ws"), "").expect("a WebSocket")).collect();
            let begun = Instant::now();
            assert_eq!(asked(&client.get(format!("{base}/x")))["path"], "/x");
            assert!(begun.elapsed() > Duration::from_millis(300), "one waited for a place");
            assert_eq!(held[0].next(), Message::Close);
        },
    );
}

#[test]
fn a_link_is_good_for_one_port_of_one_user_and_agent_until_it_expires() {
    let config = format!(
        "[limits.ports]\nlink_seconds_max = 100\n[[tokens]]\nsha256 = \"{}\"\nrole = \"admin\"\n",
        digest("admin")
    );
    at_each_tier(&config, |service, tier| {
        let (anybody, admin) = (&service.client, service.client.with_token("admin"));
        if !reaches(&admin, tier) {
            return;
        }
        let tree = workspace("张三", "a");
        serve(&admin, &tree, 8000, "none");
        for wrong in [
            json!({"port": 0}),
            json!({"port": 65536}),
            json!({"port": 1, "ttl_seconds": 0}),
            json!({"port": 1, "ttl_seconds": 101}),
        ] {
            admin.post_json(format!("{tree}/ports"), &wrong).refused(400, "invalid");
        }
        let made = admin.post_json(format!("{tree}/ports"), &json!({"port": 8000})).ok();
        let link = made["data"].as_str().unwrap().to_owned();
        let told = asked(&anybody.get(format!("{link}a/b?c")));
        assert_eq!(told["path"], "/a/b?c");
        let mut names: Vec<&String> = told["headers"].as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, ["host", "x-forwarded-host", "x-forwarded-proto"]);
        // As a page in the browser's sandbox asks, whose origin is none.
        let page = anybody
            .request("GET", format!("{link}page"))
            .header("origin", "null")
            .header("sec-fetch-site", "cross-site")
            .send();
        assert_eq!((page.status, page.header("access-control-allow-origin")), (200, Some("*")));
        assert_eq!(page.header("access-control-allow-credentials"), None);
        let preflight = anybody
            .request("OPTIONS", format!("{link}x"))
            .header("origin", "null")
            .header("access-control-request-method", "PUT")
            .send();
        assert_eq!((preflight.status, preflight.header("access-control-allow-methods")), (204, Some("*")));
        assert_eq!(
            anybody.get(format!("{link}redirect")).header("location"),
            Some(format!("{link}page?x").as_str())
        );
        let mut socket = anybody.websocket(&format!("{link}ws"), "origin: null\r\n").expect("a WebSocket");
        socket.type_in("link");
        assert_eq!(socket.next(), Message::Binary(b"knil".to_vec()));

        // It opens nothing else, and a changed one nothing at all.
        let token = link.trim_start_matches("/v1/ports/").trim_end_matches('/').to_owned();
        anybody.with_token(&token).get(format!("{tree}/files")).refused(401, "unauthenticated");
        let changed = link.replacen("fsbp1.", "fsbp1.0", 1);
        for wrong in [changed, "/v1/ports/none/".to_owned(), link.replace("fsbp1", "fsb1")] {
            anybody.get(wrong).refused(401, "unauthenticated");
        }
        let issued = admin.post_json("/v1/tokens", &json!({"user": "张三", "ttl_seconds": 2})).ok();
        let of_user = issued["data"].as_str().unwrap();
        anybody.get(format!("/v1/ports/{of_user}/")).refused(401, "unauthenticated");
        // No longer than the token that asked for it.
        let user = anybody.with_token(of_user);
        let short = user.post_json(format!("{tree}/ports"), &json!({"port": 8000, "ttl_seconds": 100})).ok();
        assert_eq!(short["expires_at"], issued["expires_at"]);
        let short = short["data"].as_str().unwrap();
        assert_eq!(asked(&anybody.get(format!("{short}x")))["path"], "/x");
        let mut socket = anybody.websocket(&format!("{short}ws"), "").expect("a WebSocket");
        assert_eq!(socket.next(), Message::Close);
        anybody.get(format!("{short}x")).refused(401, "unauthenticated");
        // Neither log nor audit log has the link, and both have its id.
        let id = made["id"].as_str().unwrap();
        let audit = std::fs::read_dir(service.root.join(".filesecbox/audit")).unwrap();
        let audit: String =
            audit.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok()).collect();
        for (name, text) in [("log", service.log()), ("audit log", audit)] {
            assert!(text.contains(id) && !text.contains(&token), "{name}");
        }
    });
}

#[test]
fn a_caller_that_leaves_frees_its_connection() {
    at_each_tier("[limits.ports]\nconnections_per_user = 2\n", |service, tier| {
        if !reaches(&service.client, tier) {
            return;
        }
        let (client, tree) = (&service.client, workspace("u", "a"));
        serve(client, &tree, 8000, "none");
        for _ in 0..6 {
            let mut stream = client.connect();
            let head = format!("GET {tree}/ports/8000/stall HTTP/1.1\r\nhost: {}\r\n\r\n", client.address);
            stream.write_all(head.as_bytes()).unwrap();
            let mut first = [0; 1];
            stream.read_exact(&mut first).unwrap();
        }
        assert_eq!(asked(&client.get(format!("{tree}/ports/8000/x")))["path"], "/x");
    });
}
