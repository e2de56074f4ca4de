//! Real programs with nothing but the variables that a run gets.

use std::process::{Command, Output};

use egress::{ADDRESS, Pass};

use crate::support::{Proxy, Script, Server, have, http};

/// `program` with the environment of a run, and nothing of this test's.
fn program(name: &str, proxy: &Proxy, pass: &Pass) -> Command {
    let mut command = Command::new(name);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    for (name, value) in pass.environment() {
        command.env(name, value.replace(ADDRESS, &proxy.address.to_string()));
    }
    command
}

fn curl(proxy: &Proxy, pass: &Pass, args: &[&str]) -> (i32, String, String) {
    let mut command = program("curl", proxy, pass);
    let Output { status, stdout, stderr } =
        command.args(["--silent", "--show-error", "--max-time", "20"]).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn web() -> (Server, Proxy) {
    let server = Server::start(http);
    let script = Script::new(&[("web.example", &[&["127.0.0.1"]])]);
    let proxy = Proxy::start(&[server.port()], &script);
    (server, proxy)
}

#[test]
fn curl_gets_through_plainly_and_by_tunnel_and_posts_in_both_framings() {
    if !have("curl") {
        return;
    }
    let (server, proxy) = web();
    let pass = proxy.admit("curl");
    let url = format!("http://web.example:{}/a", server.port());
    assert_eq!(curl(&proxy, &pass, &[&url]), (0, "hello\n".into(), String::new()));
    assert_eq!(curl(&proxy, &pass, &["--proxytunnel", &url]), (0, "hello\n".into(), String::new()));
    assert_eq!(curl(&proxy, &pass, &["--data", "body", &url]).1, "hello\n");
    let chunked = ["--header", "Transfer-Encoding: chunked", "--data", "body", &url];
    assert_eq!(curl(&proxy, &pass, &chunked).1, "hello\n");
    assert_eq!(curl(&proxy, &pass, &["--http1.0", &url]).1, "hello\n");
    let heard = server.heard(5);
    for end in ["\r\n\r\nbody", "\r\n\r\n4\r\nbody\r\n0\r\n\r\n"] {
        assert!(heard.iter().any(|said| said.ends_with(end)), "{heard:?}");
    }
    assert!(heard.iter().all(|said| !said.to_lowercase().contains("proxy-")), "{heard:?}");
}

#[test]
fn curl_is_told_what_is_refused_and_why() {
    if !have("curl") {
        return;
    }
    let script = Script::new(&[("inner.example", &[&["10.0.0.1"]])]);
    let proxy = Proxy::with(&[80, 443], &script, |config| config.allow_private.clear());
    let pass = proxy.admit("curl");
    let (_, body, _) = curl(&proxy, &pass, &["http://inner.example/"]);
    assert_eq!(
        body,
        "filesecbox: `inner.example` is at a private address: ask the operator to open its range in \
         `commands.proxy.allow_private` (rule `not_public`)\n"
    );
    let (code, _, error) = curl(&proxy, &pass, &["https://inner.example/"]);
    assert!(code == 56 && error.contains("403"), "{code}: {error}");
    for url in [
        "http://0x7f.1/",
        "http://2130706433/",
        "http://127.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1]/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://10.0.0.1/",
    ] {
        // curl reads some of them as addresses of its own network, for which it needs no proxy.
        let (_, status, _) = curl(
            &proxy,
            &pass,
            &["--noproxy", "", "--globoff", "--output", "/dev/null", "--write-out", "%{http_code}", url],
        );
        assert_eq!(status, "403", "{url}");
    }
    let stranger = Proxy::start(&[80], &Script::default());
    let (_, status, _) = curl(
        &stranger,
        &pass,
        &["--output", "/dev/null", "--write-out", "%{http_code}", "http://web.example/"],
    );
    assert_eq!(status, "407");
}

/// Its `urllib` sends credentials only when both halves are there.
#[test]
fn pythons_own_client_gets_through() {
    if !have("python3") {
        return;
    }
    let (server, proxy) = web();
    let pass = proxy.admit("python");
    let script = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=20).read().decode())";
    let url = format!("http://web.example:{}/a", server.port());
    let output = program("python3", &proxy, &pass).args(["-c", script, &url]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "hello\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Its `requests` sends no credentials for an address without the colon after the user name.
#[test]
fn pip_gets_through() {
    if !have("pip") {
        return;
    }
    let (server, proxy) = web();
    let pass = proxy.admit("pip");
    let index = format!("http://web.example:{}/simple", server.port());
    let output = program("pip", &proxy, &pass)
        .args(["--isolated", "--no-cache-dir", "download", "--retries=0", "--timeout=20", "--no-deps"])
        .args(["--trusted-host=web.example", "--index-url", &index, "no-such-package-of-this-test"])
        .output()
        .unwrap();
    // The server has no packages: that it was asked is the point.
    let heard = server.heard(1);
    assert!(
        heard.iter().any(|said| said.starts_with("GET /simple/no-such-package-of-this-test/ HTTP/1.1\r\n")),
        "{heard:?} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
