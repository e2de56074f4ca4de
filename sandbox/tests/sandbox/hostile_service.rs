//! A service that is broken, or lies: after any answer calls end, and take no more than they may.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use sandbox::{
    AgentId, ErrorKind, ReadOptions, Sandbox, SandboxExt, SandboxPath, ServiceOptions, ServiceSandbox,
    UserId, WriteOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Far more than any of these takes, and less than the patience with a service that says nothing.
const SOON: Duration = Duration::from_secs(20);
const TOKEN: &str = "t0p-secret-token";

/// A service that answers every request with `head`, and then `more` for ever.
async fn service(head: &'static str, more: &'static [u8]) -> ServiceSandbox {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 64 << 10];
                let _asked = connection.read(&mut request).await;
                let _told = connection.write_all(head.as_bytes()).await;
                // Until the other side has enough.
                while !more.is_empty() && connection.write_all(more).await.is_ok() {}
                let _until_closed = connection.read(&mut request).await;
            });
        }
    });
    let agent = AgentId::parse("demo").unwrap();
    let token = Some(TOKEN.to_owned());
    ServiceSandbox::new(ServiceOptions { address, authorities: None, token, agent, skills: false }).unwrap()
}

fn user() -> UserId {
    UserId::parse("小明").unwrap()
}

fn path() -> SandboxPath {
    SandboxPath::parse("/workspace/a").unwrap()
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const CHUNK: &[u8] = b"8\r\nxxxxxxxx\r\n";

#[tokio::test]
async fn an_answer_without_end_to_a_change_is_let_go() {
    let sandbox = service(CHUNKED, CHUNK).await;
    let body = stream::once(async { Ok("x".into()) }).boxed();
    let changes = async {
        sandbox.write_file(&user(), &path(), body, WriteOptions::default()).await.unwrap();
        sandbox.remove(&user(), &path()).await.unwrap();
    };
    tokio::time::timeout(SOON, changes).await.unwrap();
}

#[tokio::test]
async fn an_answer_without_end_to_a_question_is_refused() {
    let sandbox = service(CHUNKED, b"8\r\n        \r\n").await;
    let asked = tokio::time::timeout(3 * SOON, sandbox.stat(&user(), &path())).await.unwrap();
    assert!(matches!(asked.unwrap_err().kind(), ErrorKind::Disconnected | ErrorKind::Timeout));
}

#[tokio::test]
async fn more_bytes_than_were_told_are_refused() {
    let head =
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-3/4\r\ntransfer-encoding: chunked\r\n\r\n";
    let sandbox = service(head, CHUNK).await;
    let options = ReadOptions { range: Some(0..4), bytes_max: Some(4) };
    let body = sandbox.read_file(&user(), &path(), options).await.unwrap();
    let read = tokio::time::timeout(SOON, body.bytes()).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn other_bytes_than_those_asked_for_are_never_taken_for_them() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789",
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-3/10\r\ncontent-length: 4\r\n\r\n0123",
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes */10\r\ncontent-length: 4\r\n\r\n0123",
    ] {
        let sandbox = service(head, b"").await;
        let options = ReadOptions { range: Some(4..8), bytes_max: None };
        let read = sandbox.read_file(&user(), &path(), options).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Internal, "{head}");
    }
}

#[tokio::test]
async fn a_long_failure_is_told_in_short_and_without_the_token() {
    let head = "HTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = format!("{{\"data\":\"{}\",\"code\":\"invalid\"}}", "字".repeat(1_000_000));
    let answer = format!("{head}{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let sandbox = service(Box::leak(answer.into_boxed_str()), b"").await;
    let error = sandbox.read(&user(), &path()).await.unwrap_err();
    assert_eq!((error.kind(), error.message().chars().count()), (ErrorKind::Invalid, 1_000));
    assert!(!format!("{error:?} {sandbox:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_line_of_events_without_end_is_refused() {
    let endless = service(CHUNKED, CHUNK).await;
    let mut spec = sandbox::ExecSpec::shell("true");
    spec.output_bytes_max = 8 << 20;
    let run = tokio::time::timeout(SOON, endless.exec(&user(), spec)).await.unwrap();
    assert_eq!(run.unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn a_tag_that_is_no_strong_one_is_no_version() {
    for (tag, is_version) in [
        ("\"9f00b3-16\"", true),
        ("W/\"9f00b3-16\"", false),
        ("9f00b3-16", false),
        ("\"\"", false),
        ("\"a b\"", false),
        ("\"é\"", false),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\netag: {tag}\r\ncontent-length: 1\r\n\r\nx");
        let sandbox = service(Box::leak(answer.into_boxed_str()), b"").await;
        let (bytes, version) = sandbox.read_versioned(&user(), &path()).await.unwrap();
        assert_eq!((bytes.as_ref(), version.is_some()), (&b"x"[..], is_version), "{tag}");
    }
}
