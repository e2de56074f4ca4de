//! Stores of leases and packages over TLS: a server that is trusted for its name is used, and no other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::bucket_server::BucketServer;
use crate::fixture::version;
use crate::postgres_server::PostgresServer;
use crate::support::{Entry, Service, Settings, workspace, zip};

/// What stands behind the encrypted connection.
#[derive(Clone)]
enum Behind {
    /// A bucket.
    Http(SocketAddr),
    /// A database, which is first asked whether it speaks TLS.
    Database(PathBuf),
}

/// Ends TLS in front of a server, with a certificate for `localhost`.
struct Terminated {
    port: u16,
    dir: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Terminated {
    fn start(behind: Behind) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), made.cert.pem()).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(relay(stream, acceptor.clone(), behind.clone()));
            }
        });
        Self { port, dir, _runtime: runtime }
    }

    /// A service with this configuration, which trusts the certificate or does not.
    fn service(&self, config: &str, is_trusted: bool) -> Service {
        let trusted = self.dir.path().join(if is_trusted { "ca.pem" } else { "none.pem" });
        let env = vec![("SSL_CERT_FILE".to_owned(), trusted.to_str().unwrap().to_owned())];
        let settings = Settings { config: Some(config.to_owned()), env, ..Settings::default() };
        if !is_trusted {
            // An authority of another name, so that the service trusts one.
            let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
            std::fs::write(&trusted, other.cert.pem()).unwrap();
        }
        Service::with(settings)
    }
}

/// One connection. What is no TLS ends it.
async fn relay(mut stream: TcpStream, acceptor: TlsAcceptor, behind: Behind) -> Option<()> {
    if matches!(behind, Behind::Database(_)) {
        // SSLRequest (https://www.postgresql.org/docs/current/protocol-message-formats.html).
        let mut request = [0; 8];
        stream.read_exact(&mut request).await.ok()?;
        assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47]);
        stream.write_all(b"S").await.ok()?;
    }
    let mut near = acceptor.accept(stream).await.ok()?;
    match behind {
        Behind::Http(address) => {
            let mut far = TcpStream::connect(address).await.ok()?;
            copy_bidirectional(&mut near, &mut far).await.ok()?;
        }
        Behind::Database(socket) => {
            let mut far = UnixStream::connect(socket).await.ok()?;
            copy_bidirectional(&mut near, &mut far).await.ok()?;
        }
    }
    Some(())
}

#[test]
fn a_bucket_is_used_over_tls_by_a_name_that_its_certificate_has() {
    let bucket = BucketServer::start();
    let front = Terminated::start(Behind::Http(bucket.address()));
    let plain = format!("http://{}", bucket.address());
    let at = |host: &str| bucket.config("").replace(&plain, &format!("https://{host}:{}", front.port));
    let (v1, bytes) = (version(1), zip(&[Entry::file("SKILL.md", "---\nname: s\n---\n")]));
    let target = format!("/v1/packages/{v1}");
    for (host, is_trusted) in [("localhost", false), ("127.0.0.1", true)] {
        let service = front.service(&at(host), is_trusted);
        service.client.put(&target, &bytes).refused(503, "disconnected");
        assert_eq!(bucket.seen(), [""; 0], "{host}");
    }
    front.service(&at("localhost"), true).client.put(&target, &bytes).ok();
    let other = front.service(&at("localhost"), true);
    assert_eq!(other.client.get(&target).bytes(200), bytes);
    assert!(!bucket.seen().is_empty());
}

#[test]
fn leases_are_taken_over_tls_from_a_database_whose_certificate_has_its_name() {
    let Some(server) = PostgresServer::start() else { return };
    let socket: PathBuf = Path::new(server.socket_dir()).join(".s.PGSQL.5432");
    let front = Terminated::start(Behind::Database(socket));
    let at = |host: &str| {
        let port = front.port;
        format!(
            "[prepare]\nlease_url = \"postgres://filesecbox:s3cret@{host}:{port}/postgres?sslmode=require\"\n"
        )
    };
    let target = format!("{}/prepare", workspace("u", "a"));
    let body = json!({ "entrypoint": "touch ran" });
    for (host, is_trusted) in [("localhost", false), ("127.0.0.1", true)] {
        let service = front.service(&at(host), is_trusted);
        let refused = service.client.post_json(&target, &body).refused(429, "busy");
        assert_eq!(refused["initialising"], true, "{host}");
        assert!(!service.log().contains("s3cret"), "{}", service.log());
    }
    front.service(&at("localhost"), true).client.post_json(&target, &body).ok();
}
