//! Faults of leases on all three stores, each a real one: a line to the store that is cut, silent or slow.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use filesecbox::ops::error::{Error, Initialising};
use filesecbox::ops::lease::{
    Epoch, LeaseError, LeaseStore, LocalLeases, PostgresLeases, RedisLeases, StoreError, Terms, hold,
};
use filesecbox::ops::prepare::Prepared;
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::fixture::{Ask, Fixture, KEY};
use crate::postgres_server::PostgresServer;
use crate::support::granted;

const TTL: Duration = Duration::from_millis(1200);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// What the way to a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Open,
    /// Connections end, and new ones too.
    Cut,
    /// Nothing comes through any more.
    Silent,
}

/// Leases by a line that can be cut, and the token that was last asked with.
#[derive(Debug)]
struct Lined {
    inner: Arc<dyn LeaseStore>,
    line: watch::Sender<Line>,
    /// Whether the line is this itself: the store has no other.
    is_line: bool,
    token: Mutex<String>,
}

impl Lined {
    async fn pass(&self) -> Result<(), StoreError> {
        match *self.line.borrow() {
            Line::Cut if self.is_line => return Err(StoreError("the line is cut".to_owned())),
            Line::Silent if self.is_line => {}
            _ => return Ok(()),
        }
        std::future::pending().await
    }
}

#[async_trait]
impl LeaseStore for Lined {
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<Option<Epoch>, StoreError> {
        self.pass().await?;
        token.clone_into(&mut self.token.lock());
        self.inner.acquire(key, token, ttl).await
    }
    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError> {
        self.pass().await?;
        self.inner.renew(key, token, ttl).await
    }
    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError> {
        self.pass().await?;
        self.inner.release(key, token).await
    }
}

/// A store with a line to it, and one that is asked beside the line.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    store: Arc<Lined>,
    pub(crate) direct: Arc<dyn LeaseStore>,
    line: watch::Sender<Line>,
    _server: Box<dyn Any>,
}

impl Bench {
    fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// A workspace that is prepared under leases of this store, short ones.
    pub(crate) fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.leases = self.store.clone();
        fixture.terms = Terms::new(TTL, TTL / 6).unwrap();
        fixture
    }

    /// Gives the lease of the round under way to another token.
    pub(crate) async fn replace(&self) {
        let token = self.store.token.lock().clone();
        assert!(self.direct.release(KEY, &token).await.unwrap(), "{}: it is under way", self.name);
        assert!(self.direct.acquire(KEY, "another", MINUTE).await.unwrap().is_some());
    }
}

/// Relays a socket to another one, as the line says.
fn relay(from: &Path, to: PathBuf, line: &watch::Sender<Line>) {
    let listener = UnixListener::bind(from).unwrap();
    let line = line.subscribe();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (to, mut line) = (to.clone(), line.clone());
            tokio::spawn(async move {
                let mut far = UnixStream::connect(to).await.unwrap();
                loop {
                    let now = *line.borrow_and_update();
                    match now {
                        Line::Cut => return,
                        Line::Silent => drop(line.changed().await),
                        Line::Open => tokio::select! {
                            _ = copy_bidirectional(&mut near, &mut far) => return,
                            _ = line.changed() => {}
                        },
                    }
                }
            });
        }
    });
}

/// A Redis of a test's own, killed when dropped.
pub(crate) struct Redis(std::process::Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A Redis whose socket is `real` in this directory.
pub(crate) fn redis(dir: &Path) -> Option<Redis> {
    let started = std::process::Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(dir.join("real"))
        .current_dir(dir)
        .stdout(std::process::Stdio::null())
        .spawn();
    granted("redis", started.is_ok()).then(|| Redis(started.unwrap()))
}

/// All stores that this host has.
pub(crate) async fn benches() -> Vec<Bench> {
    let bench = |name, inner, direct, line: watch::Sender<Line>, is_line, server| {
        let store = Lined { inner, line: line.clone(), is_line, token: Mutex::default() };
        Bench { name, store: Arc::new(store), direct, line, _server: server }
    };
    let open = || watch::Sender::new(Line::Open);
    let local: Arc<dyn LeaseStore> = Arc::new(LocalLeases::default());
    let mut benches = vec![bench("local", local.clone(), local, open(), true, Box::new(()))];
    let dir = tempfile::tempdir().unwrap();
    if let Some(server) = redis(dir.path()) {
        let leases = |name: &str| {
            let url = format!("redis+unix://{}", dir.path().join(name).to_str().unwrap());
            Arc::new(RedisLeases::new(&url).unwrap()) as Arc<dyn LeaseStore>
        };
        let (direct, line) = (leases("real"), open());
        let ready = async {
            while direct.release("none", "none").await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(MINUTE, ready).await.unwrap();
        relay(&dir.path().join("relayed"), dir.path().join("real"), &line);
        benches.push(bench("redis", leases("relayed"), direct, line, false, Box::new((server, dir))));
    }
    if let Some(server) = PostgresServer::start() {
        let leases = |dir: &Path| {
            Arc::new(PostgresLeases::new(&PostgresServer::url(dir)).unwrap()) as Arc<dyn LeaseStore>
        };
        let (direct, line) = (leases(server.socket_dir()), open());
        let relayed = tempfile::tempdir().unwrap();
        let socket = ".s.PGSQL.5432";
        relay(&relayed.path().join(socket), server.socket_dir().join(socket), &line);
        let store = leases(relayed.path());
        benches.push(bench("postgresql", store, direct, line, false, Box::new((server, relayed))));
    }
    benches
}

#[track_caller]
pub(crate) fn why(result: Result<Prepared, Error>) -> Initialising {
    match result {
        Err(Error::Initialising { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_held_keeps_all_others_out_until_it_expires() {
    for bench in benches().await {
        let fixture = bench.fixture();
        assert!(bench.direct.acquire(KEY, "another", TTL).await.unwrap().is_some());
        assert_eq!(why(fixture.try_prepare(Ask::script("touch ran")).await), Initialising::Elsewhere);
        assert_eq!(fixture.sandbox.calls(), [], "{}", bench.name);
        sleep(TTL).await;
        fixture.prepare(Ask::script("touch ran")).await;
        assert!(fixture.has("ran") && !bench.direct.release(KEY, "another").await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_line_to_the_store_nothing_begins_and_with_it_again_all_goes_on() {
    for bench in benches().await {
        let fixture = bench.fixture();
        for line in [Line::Cut, Line::Silent] {
            bench.set(line);
            assert_eq!(why(fixture.try_prepare(Ask::script("touch ran")).await), Initialising::Unleased);
            assert_eq!(fixture.sandbox.calls(), [], "{}: {line:?}", bench.name);
        }
        bench.set(Line::Open);
        // What was asked for may have been given, and then ends by itself.
        sleep(TTL).await;
        fixture.prepare(Ask::script("touch ran")).await;
        assert!(fixture.has("ran"), "{}", bench.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_back_in_time_loses_nothing_and_one_that_is_not_loses_the_lease() {
    for bench in benches().await {
        for line in [Line::Cut, Line::Silent] {
            let fixture = bench.fixture();
            let trouble = async {
                fixture.gets("begun").await;
                bench.set(line);
                sleep(TTL / 2).await;
                bench.set(Line::Open);
            };
            let round = fixture.prepare(Ask::script("touch begun; sleep 1.5; touch ran"));
            let (_, ()) = tokio::join!(timeout(MINUTE, round), trouble);
            assert!(fixture.has("ran"), "{}: {line:?}", bench.name);

            let trouble = async {
                fixture.gets("again").await;
                bench.set(line);
            };
            let round = fixture.try_prepare(Ask::script("touch again; sleep 4; touch too-late"));
            let (ended, ()) = tokio::join!(timeout(MINUTE, round), trouble);
            assert_eq!(why(ended.unwrap()), Initialising::Lost, "{}: {line:?}", bench.name);
            bench.set(Line::Open);
            sleep(TTL).await;
            assert!(bench.direct.acquire(KEY, "another", MINUTE).await.unwrap().is_some(), "it has expired");
            assert!(bench.direct.release(KEY, "another").await.unwrap());
            sleep(Duration::from_secs(2)).await;
            assert!(!fixture.has("too-late"), "{}: {line:?}", bench.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_comes_and_goes_loses_nothing_while_it_is_there_often_enough() {
    for bench in benches().await {
        let mut fixture = bench.fixture();
        // Many times as long as the line is cut, and shorter than the round.
        fixture.terms = Terms::new(TTL * 4, TTL / 6).unwrap();
        let flapping = async {
            fixture.gets("begun").await;
            loop {
                sleep(TTL / 8).await;
                bench.set(Line::Cut);
                sleep(TTL / 8).await;
                bench.set(Line::Open);
            }
        };
        tokio::select! {
            prepared = fixture.try_prepare(Ask::script("touch begun; sleep 6; touch ran")) => drop(prepared.unwrap()),
            () = flapping => {}
        }
        assert!(fixture.has("ran"), "{}", bench.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_replaced_ends_the_round_and_the_other_one_keeps_the_lease() {
    for bench in benches().await {
        let fixture = bench.fixture();
        let replaced = async {
            fixture.gets("begun").await;
            sleep(TTL / 4).await;
            bench.replace().await;
        };
        let (ended, ()) =
            tokio::join!(fixture.try_prepare(Ask::script("touch begun; sleep 2; touch ran")), replaced);
        assert_eq!(why(ended), Initialising::Lost, "{}", bench.name);
        assert!(bench.direct.renew(KEY, "another", MINUTE).await.unwrap(), "the loser has freed nothing");
        sleep(Duration::from_secs(2)).await;
        assert!(!fixture.has("ran"), "{}", bench.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_a_store_that_does_not_answer_and_is_not_done_once_that_says_no() {
    let inner: Arc<dyn LeaseStore> = Arc::new(LocalLeases::default());
    let (line, token) = (watch::Sender::new(Line::Open), Mutex::default());
    let lined = Arc::new(Lined { inner: inner.clone(), line: line.clone(), is_line: true, token });
    let store: Arc<dyn LeaseStore> = lined.clone();
    let terms = Terms::new(MINUTE, MINUTE / 6).unwrap();
    let steps = Mutex::new(Vec::new());
    let outcome = hold(&store, KEY, terms, async |lease| {
        lease.confirm().await;
        steps.lock().push("first");
        for fault in [Line::Cut, Line::Silent] {
            line.send_replace(fault);
            assert!(timeout(MINUTE / 4, lease.confirm()).await.is_err(), "{fault:?}");
            line.send_replace(Line::Open);
            lease.confirm().await;
        }
        steps.lock().push("second");
        let own = lined.token.lock().clone();
        assert!(inner.release(KEY, &own).await.unwrap());
        assert!(inner.acquire(KEY, "another", MINUTE).await.unwrap().is_some());
        lease.confirm().await;
        steps.lock().push("third");
    });
    assert!(matches!(outcome.await, Err(LeaseError::Lost)));
    assert_eq!(*steps.lock(), ["first", "second"]);
    assert!(inner.renew(KEY, "another", MINUTE).await.unwrap(), "the loser has freed nothing");
}
