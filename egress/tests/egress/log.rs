//! The log line of a request, and the facts that it must not hold.

use std::time::{Duration, Instant};

use crate::support::{Proxy, Script, Server, exchange, http, log_of};

#[test]
fn every_request_is_one_line_without_path_query_fields_token_or_body() {
    let server = Server::start(http);
    let script = Script::new(&[("logged.example", &[&["127.0.0.1"]])]);
    let proxy = Proxy::start(&[server.port()], &script);
    let pass = proxy.admit("log-user");
    let port = server.port();
    exchange(
        &proxy,
        &pass,
        &format!(
            "POST http://logged.example:{port}/s3cr3t-path?s3cr3t-query HTTP/1.1\r\n{{auth}}\r\n\
             X-Field: s3cr3t-field\r\nContent-Length: 11\r\n\r\ns3cr3t-body"
        ),
    );
    exchange(&proxy, &pass, "s3cr3t http://s3cr3t%20host/ HTTP/1.1\r\n{auth}\r\n\r\n");
    exchange(&proxy, &pass, "CONNECT 10.0.0.1:443 HTTP/1.1\r\n{auth}\r\n\r\n");
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut lines = log_of("log-user");
    while lines.len() < 3 {
        assert!(Instant::now() < deadline, "{lines:?}");
        std::thread::sleep(Duration::from_millis(5));
        lines = log_of("log-user");
    }
    let whole = lines.join("\n");
    assert!(!whole.contains("s3cr3t") && !whole.contains(pass.token()), "{whole}");
    for part in [
        "\"method\":\"POST\"",
        "\"host\":\"logged.example\"",
        "\"agent\":\"agent\"",
        "\"run\":\"run-1\"",
        "\"outcome\":\"complete\"",
        "\"outcome\":\"spelling\"",
        "\"host\":\"10.0.0.1\"",
        "\"outcome\":\"port\"",
    ] {
        assert!(whole.contains(part), "{part} is missing: {whole}");
    }
    assert!(
        lines.iter().any(|line| line.contains(&format!("\"port\":{port}")) && line.contains("\"bytes_in\":"))
    );
    assert_eq!(lines.len(), 3);
}
