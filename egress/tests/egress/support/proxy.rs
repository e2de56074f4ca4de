//! [`Proxy`]: the proxy under test with a runtime of its own, and what a client says to it over a bare socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use egress::{Account, Egress, EgressConfig, Pass, ProxySettings, Who};
use parking_lot::Mutex;
use policy::{AgentId, UserId};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::Script;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();

/// Everything that the proxies of this process have logged, of one user.
pub(crate) fn log_of(user: &str) -> Vec<String> {
    let whole = String::from_utf8(LOG.get().map(|log| log.lock().clone()).unwrap_or_default()).unwrap();
    whole.lines().filter(|line| line.contains(&format!("\"user\":\"{user}\""))).map(str::to_owned).collect()
}

struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn collect_log() {
    LOG.get_or_init(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&log);
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || Log(Arc::clone(&writer)))
            .init();
        log
    });
}

/// A serving proxy; dropping it stops it.
pub(crate) struct Proxy {
    pub(crate) egress: Arc<Egress>,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// A proxy for which loopback is open, on `ports` and nothing else, with names from `script`.
    pub(crate) fn start(ports: &[u16], script: &Script) -> Self {
        Self::with(ports, script, |_| ())
    }

    /// The same with a changed configuration.
    pub(crate) fn with(ports: &[u16], script: &Script, change: impl FnOnce(&mut EgressConfig)) -> Self {
        collect_log();
        let settings = ProxySettings {
            ports: ports.to_vec(),
            allow_private: vec!["127.0.0.0/8".into(), "::1/128".into()],
            ..ProxySettings::default()
        };
        let mut config = EgressConfig::new(&settings, Vec::new()).unwrap();
        change(&mut config);
        let egress = Egress::with_resolver(config, Arc::new(script.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let stop = CancellationToken::new();
        let (served, stopped) = (Arc::clone(&egress), stop.clone());
        runtime.spawn(async move { served.serve(listener, None, stopped).await.unwrap() });
        Self { egress, address, stop, runtime: Some(runtime) }
    }

    /// Serves one more listener, for the runs of `user` alone; its address.
    pub(crate) fn listen_for(&self, user: &str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let user = UserId::parse(user).unwrap();
        let account = Account { user, agent: AgentId::parse("agent").unwrap() };
        let (served, stopped) = (Arc::clone(&self.egress), self.stop.clone());
        let serving = async move { served.serve(listener, Some(account), stopped).await.unwrap() };
        self.runtime.as_ref().unwrap().spawn(serving);
        address
    }

    pub(crate) fn admit(&self, user: &str) -> Pass {
        let who = Who {
            user: UserId::parse(user).unwrap(),
            agent: AgentId::parse("agent").unwrap(),
            run: "run-1".to_owned(),
        };
        self.egress.admit(who).unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a head with the token of `pass`, in whose text `{auth}` stands for the field.
    pub(crate) fn ask(&self, pass: &Pass, head: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(head.replace("{auth}", &credentials(pass)).as_bytes()).unwrap();
        stream
    }

    /// Opens a tunnel that must be granted.
    pub(crate) fn tunnel(&self, pass: &Pass, target: &str) -> TcpStream {
        let mut stream = self.ask(pass, &format!("CONNECT {target} HTTP/1.1\r\n{{auth}}\r\n\r\n"));
        let expected = b"HTTP/1.1 200 Connection established\r\n\r\n";
        let mut head = vec![0; expected.len()];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(String::from_utf8_lossy(&head), String::from_utf8_lossy(expected));
        stream
    }

    /// The status and the rule with which `CONNECT target` is answered.
    pub(crate) fn verdict(&self, pass: &Pass, target: &str) -> String {
        let stream = self.ask(pass, &format!("CONNECT {target} HTTP/1.1\r\n{{auth}}\r\n\r\n"));
        let answer = first_line(stream);
        let rule = answer.split_once('(').map_or("", |(_, rule)| rule.trim_end_matches([')', '\r', '\n']));
        format!("{} {rule}", status_of(&answer))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The field with the token of `pass`.
pub(crate) fn credentials(pass: &Pass) -> String {
    // The standard's own alphabet, by hand: base64 of `token:` with the token's 32 digits.
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{}:", pass.token());
    let encoded = text.as_bytes().chunks(3).map(|chunk| {
        let [a, b, c] = [0, 1, 2].map(|index| usize::from(chunk.get(index).copied().unwrap_or(0)));
        let sextets = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63];
        sextets.map(|sextet| char::from(alphabet[sextet])).into_iter().collect::<String>()
    });
    format!("Proxy-Authorization: Basic {}", encoded.collect::<String>())
}

fn first_line(mut stream: TcpStream) -> String {
    let (mut line, mut byte) = (String::new(), [0]);
    while !line.ends_with('\n') && stream.read(&mut byte).unwrap() == 1 {
        line.push(char::from(byte[0]));
    }
    line
}

/// The status of an answer; 0 of none.
pub(crate) fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Reads to the end; a reset connection is an end too.
pub(crate) fn receive(stream: &mut TcpStream) -> String {
    let (mut whole, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => whole.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&whole)),
        }
    }
    String::from_utf8_lossy(&whole).into_owned()
}

/// Sends `text` with the token in place of `{auth}` and reads the whole answer.
pub(crate) fn exchange(proxy: &Proxy, pass: &Pass, text: &str) -> String {
    receive(&mut proxy.ask(pass, text))
}
