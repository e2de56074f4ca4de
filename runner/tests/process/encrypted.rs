//! TLS, and proxies on the way.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::process::Signal;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::{Connection, PATIENCE, Place, Service, end, signal};

/// A service with a certificate for `names`; the certificate goes to `ca.pem`.
struct Encrypted {
    service: Service,
    acceptor: TlsAcceptor,
}

impl Encrypted {
    async fn listen(place: &Place, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(place.path("ca.pem"), made.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        Self { service: Service::listen().await, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    async fn stream(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let accepted =
            tokio::time::timeout(PATIENCE, self.service.listener.accept()).await.expect("a runner");
        self.acceptor.accept(accepted.unwrap().0).await
    }
}

/// A proxy that takes one connection, and tells the head of its request.
async fn proxy(answer: &'static str, to: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut near = BufReader::new(listener.accept().await.unwrap().0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            near.read_line(&mut head).await.unwrap();
        }
        near.write_all(answer.as_bytes()).await.unwrap();
        if answer.contains("200") {
            let mut far = TcpStream::connect(to).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
        head
    });
    (address, task)
}

#[tokio::test]
async fn a_certificate_of_a_named_authority_is_trusted() {
    let place = Place::new();
    let server = Encrypted::listen(&place, &["localhost"]).await;
    let url = format!("wss://localhost:{}/ws/alice", server.service.port());
    let ca = place.path("ca.pem");
    let _runner = place.runner(&url, &["--ca-file", ca.to_str().unwrap()]).spawn().unwrap();
    let (mut connection, first) = Connection::accept(server.stream().await.unwrap()).await;
    assert_eq!(first["type"], "register");
    connection.say(json!({"type": "register_ok"})).await;
    assert_eq!(connection.ask("stat", json!({"path": ""})).await["type"], "file_info");
}

#[tokio::test]
async fn a_certificate_of_others_or_for_another_name_is_refused_and_told() {
    let place = Place::new();
    let ca = place.path("ca.pem");
    for (names, arguments) in
        [(["localhost"], vec![]), (["other.example"], vec!["--ca-file", ca.to_str().unwrap()])]
    {
        let server = Encrypted::listen(&place, &names).await;
        let url = format!("wss://localhost:{}/ws/alice", server.service.port());
        // An authority that is there, so that it is the certificate that fails.
        let more = Place::new();
        let other = Encrypted::listen(&more, &["elsewhere.example"]).await;
        let mut command = place.runner(&url, &arguments);
        let runner = command.env("SSL_CERT_FILE", more.path("ca.pem")).spawn().unwrap();
        assert!(server.stream().await.is_err());
        // It does not end: the certificate may be renewed.
        let again = server.stream().await;
        assert!(again.is_err());
        signal(&runner, Signal::TERM);
        let (code, log) = end(runner).await;
        assert_eq!(code, Some(0), "{log}");
        assert!(
            log.contains("certificate of the service is not trusted") && log.contains("--ca-file"),
            "{log}"
        );
        drop(other);
    }
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_gone_through() {
    let place = Place::new();
    let server = Encrypted::listen(&place, &["service.example"]).await;
    let (address, task) =
        proxy("HTTP/1.1 200 Go\r\n\r\n", server.service.listener.local_addr().unwrap()).await;
    let ca = place.path("ca.pem");
    let mut command = place.runner("wss://service.example/ws/alice", &["--ca-file", ca.to_str().unwrap()]);
    let _runner = command.env("HTTPS_PROXY", format!("http://u:p@{address}")).spawn().unwrap();
    let (_, first) = Connection::accept(server.stream().await.unwrap()).await;
    assert_eq!(first["type"], "register");
    let head = task.await.unwrap();
    assert!(head.starts_with("CONNECT service.example:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic dTpw\r\n"), "{head}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_told_and_no_proxy_goes_around_it() {
    let place = Place::new();
    let server = Encrypted::listen(&place, &["localhost"]).await;
    let to = server.service.listener.local_addr().unwrap();
    let url = format!("wss://localhost:{}/ws/alice", server.service.port());
    let ca = place.path("ca.pem");
    let arguments = ["--ca-file", ca.to_str().unwrap()];
    let (address, task) = proxy("HTTP/1.1 407 No\r\n\r\n", to).await;
    let runner = place.runner(&url, &arguments).env("ALL_PROXY", address.to_string()).spawn().unwrap();
    task.await.unwrap();
    // Once the answer was read, there is a pause.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    signal(&runner, Signal::TERM);
    let (_, log) = end(runner).await;
    assert!(log.contains("HTTP 407"), "{log}");
    let mut command = place.runner(&url, &arguments);
    let _runner =
        command.env("ALL_PROXY", "http://127.0.0.1:1").env("NO_PROXY", "localhost").spawn().unwrap();
    assert!(server.stream().await.is_ok());
}
