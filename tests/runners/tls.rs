//! Our own clients over TLS: the command line, and the agent's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use sandbox::{AgentId, ErrorKind, Sandbox, SandboxPath, ServiceOptions, ServiceSandbox, UserId};
use serde_json::json;

use crate::commands::said;
use crate::founding::registered;
use crate::support::Service;

/// A proxy that speaks TLS with a certificate for `localhost`, and plain HTTP to `behind`.
fn tls_proxy(behind: std::net::SocketAddr) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), config) = (stream, Arc::clone(&config)) else { continue };
            std::thread::spawn(move || {
                let mut connection = rustls::ServerConnection::new(config).unwrap();
                let mut tls = rustls::Stream::new(&mut connection, &mut stream);
                let mut head = Vec::new();
                let mut byte = [0];
                // A request without a body, as `runner list` sends it.
                while !head.ends_with(b"\r\n\r\n") {
                    match tls.read(&mut byte) {
                        Ok(1) => head.push(byte[0]),
                        _ => return,
                    }
                }
                let head = String::from_utf8(head).unwrap().replacen("\r\n", "\r\nconnection: close\r\n", 1);
                let mut plain = TcpStream::connect(behind).unwrap();
                plain.write_all(head.as_bytes()).unwrap();
                let mut answer = Vec::new();
                plain.read_to_end(&mut answer).unwrap();
                tls.write_all(&answer).unwrap();
                tls.conn.send_close_notify();
                let _ = tls.flush();
            });
        }
    });
    (port, made.cert.pem())
}

#[test]
fn the_command_line_speaks_tls_and_says_when_a_certificate_is_not_trusted() {
    let service = Service::start();
    let _runner = registered(&service.client, "alice", &json!({}));
    let (port, certificate) = tls_proxy(service.client.address);
    let file = service.outside().join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    let list = |server: &str, ca: Option<&std::path::Path>| {
        let mut args = vec!["runner", "list", "alice", "--server", server];
        args.extend(ca.iter().flat_map(|ca| ["--ca-file", ca.to_str().unwrap()]));
        said(&args, &[])
    };
    let server = format!("https://localhost:{port}");
    let (told, is_done) = list(&server, Some(&file));
    assert!(is_done && told.contains("* default: connected"), "{told}");
    let (told, is_done) = list(&server, None);
    assert!(!is_done && told.contains("is not trusted") && told.contains("--ca-file"), "{told}");
    // The right authority, the wrong name.
    let (told, is_done) = list(&format!("https://127.0.0.1:{port}"), Some(&file));
    assert!(!is_done && told.contains("is not trusted"), "{told}");
    std::fs::write(&file, "nothing").unwrap();
    let (told, is_done) = list(&server, Some(&file));
    assert!(!is_done && told.contains("holds no certificate"), "{told}");
}

#[test]
fn the_agents_client_speaks_tls_and_says_when_a_certificate_is_not_trusted() {
    let service = Service::start();
    service.client.write("/v1/sandbox/alice/demo", "a.txt", "x");
    let (port, certificate) = tls_proxy(service.client.address);
    let asked = |host: &str, authorities: Option<&str>| {
        let options = ServiceOptions {
            address: format!("https://{host}:{port}"),
            authorities: authorities.map(str::to_owned),
            token: None,
            agent: AgentId::parse("demo").unwrap(),
            skills: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            ServiceSandbox::new(options)?
                .read_dir(&UserId::parse("alice").unwrap(), &SandboxPath::workspace())
                .await
        })
    };
    assert!(asked("localhost", Some(&certificate)).is_ok());
    for (host, authorities) in [("localhost", None), ("127.0.0.1", Some(certificate.as_str()))] {
        let error = asked(host, authorities).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.message().contains("is not trusted"), "{error}");
    }
    assert_eq!(asked("localhost", Some("nothing")).unwrap_err().kind(), ErrorKind::Invalid);
}
