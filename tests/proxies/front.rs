//! [`Front`]: a proxy that runs an example of `deploy/` in front of a service, and a way to it for clients that speak no TLS.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::copy_bidirectional;

use crate::support::{Client, Service, Settings, digest, granted};

/// The name that the examples have.
const NAME: &str = "box.example";
/// The admin's token of the service behind.
pub(crate) const TOKEN: &str = "token-of-the-proxies-test";
/// How long a proxy may take to listen. Only one that hangs ever reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that stands in front, by the example for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proxy {
    Nginx,
    Caddy,
}

/// A service, the proxy in front of it, and what a client needs to reach the proxy; both end with it.
pub(crate) struct Front {
    pub(crate) service: Service,
    /// Asks through the proxy, as an admin.
    pub(crate) client: Client,
    child: Child,
    /// Carries the client's connections.
    _bridge: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
}

impl Proxy {
    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
        }
    }

    /// What tells the program's version.
    fn version_argument(self) -> &'static str {
        match self {
            Self::Nginx => "-v",
            Self::Caddy => "version",
        }
    }

    /// Writes the example with the addresses and files of this test in it; the command that runs it.
    fn configured(self, dir: &Path, listen: SocketAddr, service: SocketAddr) -> Command {
        let mut command = Command::new(self.program());
        let (certificate, key) = (dir.join("box.pem"), dir.join("box.key"));
        let (certificate, key) = (certificate.display(), key.display());
        let at = dir.display();
        match self {
            Self::Nginx => {
                let example = replaced(
                    "deploy/nginx.conf",
                    &[
                        ("server 127.0.0.1:8003;", format!("server {service};")),
                        ("listen 443 ssl;", format!("listen {listen} ssl;")),
                        ("listen [::]:443 ssl;", String::new()),
                        ("/etc/ssl/certs/box.example.pem", certificate.to_string()),
                        ("/etc/ssl/private/box.example.key", key.to_string()),
                        ("/var/log/nginx/filesecbox.log", format!("{at}/access.log")),
                    ],
                );
                // What Debian's own nginx.conf has around such a file, with places that this test may write.
                let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
                    .concat();
                let whole = format!(
                    "daemon off;\npid {at}/pid;\nerror_log {at}/error.log;\nuser {};\nevents {{}}\nhttp {{\n{paths}{example}}}\n",
                    if rustix::process::geteuid().is_root() { "root" } else { "nobody" }
                );
                fs::write(dir.join("nginx.conf"), whole).unwrap();
                command.arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("error.log"));
            }
            Self::Caddy => {
                let example = replaced(
                    "deploy/Caddyfile",
                    &[
                        ("reverse_proxy 127.0.0.1:8003 {", format!("reverse_proxy {service} {{")),
                        (
                            "\nbox.example {\n",
                            format!(
                                "\nhttps://:{} {{\n\tbind {}\n\ttls {certificate} {key}\n",
                                listen.port(),
                                listen.ip()
                            ),
                        ),
                    ],
                );
                // Without its administration, certificates of its own and the port for plain HTTP.
                let whole = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{example}");
                fs::write(dir.join("Caddyfile"), whole).unwrap();
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(dir.join("Caddyfile"));
                command.env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir);
            }
        }
        command
    }
}

/// An example, in which each of these stands once, with its replacement.
fn replaced(path: &str, each: &[(&str, String)]) -> String {
    let mut text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    for (from, to) in each {
        assert_eq!(text.matches(from).count(), 1, "{path} has `{from}` once");
        text = text.replace(from, to);
    }
    text
}

impl Front {
    /// Starts both; `None`, loudly, where the program is not installed.
    pub(crate) fn start(proxy: Proxy) -> Option<Self> {
        let tried = Command::new(proxy.program()).arg(proxy.version_argument()).stdin(Stdio::null()).output();
        if !granted(proxy.program(), tried.is_ok()) {
            return None;
        }
        let config = format!("[[tokens]]\nsha256 = \"{}\"\nrole = \"admin\"\n", digest(TOKEN));
        let service = Service::configured(&config);
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        fs::write(dir.path().join("box.pem"), made.cert.pem()).unwrap();
        fs::write(dir.path().join("box.key"), made.signing_key.serialize_pem()).unwrap();
        let listen = own_address(proxy);
        let mut command = proxy.configured(dir.path(), listen, service.client.address);
        let log = fs::File::create(dir.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let (bridge, address) = bridge(listen, made.cert.der().clone());
        let client = Client { address, token: Some(TOKEN.to_owned()), ..service.client.clone() };
        let mut front = Self { service, client, child, _bridge: bridge, dir };
        front.await_listening(listen);
        Some(front)
    }

    fn await_listening(&mut self, listen: SocketAddr) {
        let begun = Instant::now();
        while TcpStream::connect(listen).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "it does not start: {}", self.log());
            assert!(begun.elapsed() < PATIENCE, "it does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the proxy's log has this text; a line may come after its answer.
    pub(crate) fn await_log(&self, wanted: &str) {
        let begun = Instant::now();
        while !self.log().contains(wanted) {
            assert!(begun.elapsed() < PATIENCE, "the proxy's log has no `{wanted}`");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the proxy has told so far, requests included.
    fn log(&self) -> String {
        let of = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        ["log", "error.log", "access.log"].map(of).concat()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<&str> = log.lines().rev().take(5).collect();
            eprintln!("--- the last lines of the proxy's log, backwards ---\n{}", last.join("\n"));
        }
        // Its main process ends the others when it is told to, and not when it is killed.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// An address of loopback that no other process uses, because it is made of this process's id: neither program tells which free port
/// it took.
fn own_address(proxy: Proxy) -> SocketAddr {
    let [.., high, middle, low] = std::process::id().to_be_bytes();
    let port = match proxy {
        Proxy::Nginx => 8443,
        Proxy::Caddy => 8444,
    };
    // The last part is neither 0 nor 255, which are a network and everybody in it.
    let host = Ipv4Addr::new(127, 64 | (high << 2) | (middle >> 6), middle << 2 | low >> 6, (low & 63) + 1);
    SocketAddr::from((host, port))
}

/// Takes plain connections and carries them over TLS to `to`, whose certificate has to be this one, for the name of the examples.
fn bridge(to: SocketAddr, certificate: CertificateDer<'static>) -> (tokio::runtime::Runtime, SocketAddr) {
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(certificate).unwrap();
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((mut plain, _)) = listener.accept().await {
            let connector = connector.clone();
            tokio::spawn(async move {
                let tcp = tokio::net::TcpStream::connect(to).await?;
                let mut secure = connector.connect(ServerName::try_from(NAME).unwrap(), tcp).await?;
                copy_bidirectional(&mut plain, &mut secure).await
            });
        }
    });
    (runtime, address)
}
