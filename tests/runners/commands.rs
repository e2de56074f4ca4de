//! `filesecbox runner …`, and the command line over TLS.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use serde_json::json;

use crate::founding::registered;
use crate::support::{Service, run_program};

/// What the command line says, and whether it succeeded.
fn said(args: &[&str], env: &[(&str, &str)]) -> (String, bool) {
    let output = run_program(args, env);
    let all = [output.stdout, output.stderr].concat();
    (String::from_utf8(all).unwrap(), output.status.success())
}

#[test]
fn an_operator_lists_chooses_cuts_and_revokes_machines() {
    let service = Service::start();
    let address = format!("http://{}", service.client.address);
    let env = [("FILESECBOX_SERVER", address.as_str())];
    let runner = |args: &[&str]| said(&[&["runner"], args].concat(), &env);
    assert_eq!(runner(&["list", "alice"]), (String::new(), true));
    let _laptop = registered(&service.client, "alice", &json!({ "name": "laptop", "isolation": "landlock" }));
    drop(registered(&service.client, "alice", &json!({ "name": "desk" })));
    let listed = runner(&["list", "alice"]).0;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines[1].starts_with("* laptop: connected since 20")
            && lines[1].ends_with("in /home/u/work, commands held by landlock"),
        "{listed}"
    );
    assert!(runner(&["choose", "alice", "desk"]).1);
    assert!(runner(&["list", "alice"]).0.contains("* desk"));
    assert!(runner(&["list", "alice", "--json"]).0.contains("\"active\": true"));
    assert!(runner(&["cut", "alice", "laptop"]).1);
    for name in ["laptop", "desk"] {
        assert!(runner(&["revoke", "alice", name]).1, "{name}");
    }
    let (told, is_done) = runner(&["revoke", "alice", "desk"]);
    assert!(!is_done && told.contains("there is no runner `desk` of this user"), "{told}");
}

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
