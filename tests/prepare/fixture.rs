//! A workspace on this host, watched and made to fail at will, packages in memory, and leases that do as they are told.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use filesecbox::ops::error::{Error, Result};
use filesecbox::ops::lease::{LeaseStore, LocalLeases, Terms};
use filesecbox::ops::prepare::{
    Bootstrap, EntryKind, InputFile, Mode, Package, PackageEntry, Packages, Preparation, Prepared, Round,
    Selected, Site, Step, deadline, prepare,
};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use policy::{UserId, VersionId};
use sandbox::{
    ByteStream, DirEntry, ErrorKind, ExecResult, ExecSpec, FileBody, FileInfo, NoneOptions, NoneSandbox,
    Program, ReadOptions, Root, Sandbox, SandboxPath, Version, WriteOptions,
};
use tokio::sync::{Semaphore, watch};

/// The key of the fixture's leases.
pub(crate) const KEY: &str = "agent-sandbox:init:alice/demo";

/// A version of a skill.
pub(crate) fn version(number: u8) -> String {
    format!("{number:024x}")
}

/// A call that reached the sandbox: the method, and the path or the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call(pub(crate) &'static str, pub(crate) String);

/// A sandbox that notes each call, and fails those that it is told to.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<NoneSandbox>,
    calls: Mutex<Vec<Call>>,
    /// Calls of a method whose path or script has the text.
    failing: Mutex<Vec<(&'static str, String)>>,
    /// How long each write takes.
    pub(crate) slow_writes: Mutex<Duration>,
    /// Calls that reach the sandbox late.
    pub(crate) late: Arc<Late>,
    /// Every command takes this time of the test's clock and then writes `ran`; no process is started, which would take real time.
    pub(crate) pretended: Mutex<Option<Duration>>,
}

/// Calls that reach the sandbox when they are told to, whatever becomes of their caller: as messages in a network.
#[derive(Debug)]
pub(crate) struct Late {
    /// Commands with the text are late.
    pub(crate) commands: Mutex<Option<String>>,
    /// Whether writes are late.
    pub(crate) writes: AtomicBool,
    /// How many have set out and not arrived.
    under_way: watch::Sender<usize>,
    arrivals: Semaphore,
}

impl Default for Late {
    fn default() -> Self {
        let (commands, writes) = (Mutex::default(), AtomicBool::default());
        Self { commands, writes, under_way: watch::Sender::new(0), arrivals: Semaphore::new(0) }
    }
}

impl Late {
    /// Lets a call be under way until it is told to arrive, and done then.
    async fn bring<T>(&self, call: impl Future<Output = T>) -> T {
        self.under_way.send_modify(|count| *count += 1);
        self.arrivals.acquire().await.unwrap().forget();
        let done = call.await;
        self.under_way.send_modify(|count| *count -= 1);
        done
    }

    /// Waits until a call is under way.
    pub(crate) async fn sets_out(&self) {
        self.under_way.subscribe().wait_for(|count| *count > 0).await.unwrap();
    }

    /// Lets all that is under way arrive, and waits until it is done.
    pub(crate) async fn arrives(&self) {
        let count = *self.under_way.borrow();
        self.arrivals.add_permits(count);
        self.under_way.subscribe().wait_for(|count| *count == 0).await.unwrap();
    }
}

impl Watched {
    fn note(&self, method: &'static str, about: &str) -> sandbox::Result<()> {
        self.calls.lock().push(Call(method, about.to_owned()));
        let fails =
            self.failing.lock().iter().any(|(failing, text)| *failing == method && about.contains(text));
        if fails { Err(sandbox::Error::new(ErrorKind::Internal, method, "made to fail")) } else { Ok(()) }
    }

    pub(crate) fn fail(&self, method: &'static str, text: &str) {
        self.failing.lock().push((method, text.to_owned()));
    }

    pub(crate) fn mend(&self) {
        self.failing.lock().clear();
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock())
    }

    /// A script that takes its time; the service's own short commands find no home directory at once.
    async fn pretend(&self, user: &UserId, script: &str, takes: Duration) -> sandbox::Result<ExecResult> {
        let is_own = !script.contains("exec bash");
        if !is_own {
            tokio::time::sleep(takes).await;
            let path = self.inner.workspace(user).await?.join("ran").unwrap();
            let body = stream::once(async { Ok("ran".into()) }).boxed();
            self.inner.write_file(user, &path, body, WriteOptions::default()).await?;
        }
        Ok(ExecResult {
            stdout: Bytes::new(),
            stderr: Bytes::new(),
            stdout_dropped_bytes: 0,
            stderr_dropped_bytes: 0,
            exit_code: i32::from(is_own) * 3,
            signal: None,
            timed_out: false,
            duration: takes,
            hint: None,
        })
    }
}

#[async_trait]
impl Sandbox for Watched {
    fn name(&self) -> &str {
        "watched"
    }
    async fn workspace(&self, user: &UserId) -> sandbox::Result<SandboxPath> {
        self.inner.workspace(user).await
    }
    async fn shell(&self, user: &UserId) -> sandbox::Result<String> {
        self.inner.shell(user).await
    }
    async fn exec(&self, user: &UserId, spec: ExecSpec) -> sandbox::Result<ExecResult> {
        let Program::Shell(script) = &spec.program else { panic!("everything is a line for the shell") };
        self.note("exec", script)?;
        let pretended = *self.pretended.lock();
        if let Some(takes) = pretended {
            return self.pretend(user, script, takes).await;
        }
        let is_late = self.late.commands.lock().as_ref().is_some_and(|text| script.contains(text));
        if !is_late {
            return self.inner.exec(user, spec).await;
        }
        let (late, inner, user) = (Arc::clone(&self.late), Arc::clone(&self.inner), user.clone());
        let call = async move { late.bring(inner.exec(&user, spec)).await };
        tokio::spawn(call).await.unwrap()
    }
    async fn read_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        options: ReadOptions,
    ) -> sandbox::Result<FileBody> {
        self.note("read", path.as_str())?;
        self.inner.read_file(user, path, options).await
    }
    async fn write_file(
        &self,
        user: &UserId,
        path: &SandboxPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> sandbox::Result<Option<Version>> {
        let wait = *self.slow_writes.lock();
        tokio::time::sleep(wait).await;
        self.note("write", path.as_str())?;
        if !self.late.writes.load(Ordering::Acquire) {
            return self.inner.write_file(user, path, body, options).await;
        }
        let (late, inner) = (Arc::clone(&self.late), Arc::clone(&self.inner));
        let (user, path) = (user.clone(), path.clone());
        let call = async move { late.bring(inner.write_file(&user, &path, body, options)).await };
        tokio::spawn(call).await.unwrap()
    }
    async fn stat(&self, user: &UserId, path: &SandboxPath) -> sandbox::Result<FileInfo> {
        self.note("stat", path.as_str())?;
        self.inner.stat(user, path).await
    }
    async fn read_dir(&self, user: &UserId, path: &SandboxPath) -> sandbox::Result<Vec<DirEntry>> {
        self.note("list", path.as_str())?;
        self.inner.read_dir(user, path).await
    }
    async fn mkdir_all(&self, user: &UserId, path: &SandboxPath, permissions: u32) -> sandbox::Result<()> {
        self.note("mkdir", path.as_str())?;
        self.inner.mkdir_all(user, path, permissions).await
    }
    async fn remove(&self, user: &UserId, path: &SandboxPath) -> sandbox::Result<()> {
        self.inner.remove(user, path).await
    }
    async fn remove_all(&self, user: &UserId, path: &SandboxPath) -> sandbox::Result<()> {
        self.note("remove", path.as_str())?;
        self.inner.remove_all(user, path).await
    }
    async fn close_for_user(&self, user: &UserId) -> sandbox::Result<()> {
        self.inner.close_for_user(user).await
    }
    async fn close(&self) -> sandbox::Result<()> {
        self.inner.close().await
    }
}

/// Packages in memory, and how often each was fetched.
#[derive(Default)]
pub(crate) struct Shelf {
    packages: Mutex<HashMap<String, Vec<(String, String)>>>,
    /// Versions whose packages cannot be unpacked.
    pub(crate) damaged: Mutex<Vec<String>>,
    fetched: Mutex<Vec<String>>,
}

impl Shelf {
    pub(crate) fn put(&self, version: &str, files: &[(&str, &str)]) {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        self.packages.lock().insert(version.to_owned(), files);
    }

    pub(crate) fn fetched(&self) -> Vec<String> {
        std::mem::take(&mut *self.fetched.lock())
    }
}

struct InMemory {
    entries: Vec<PackageEntry>,
    contents: BTreeMap<String, String>,
}

#[async_trait]
impl Package for InMemory {
    fn entries(&self) -> &[PackageEntry] {
        &self.entries
    }
    async fn open(&self, path: &str) -> Result<ByteStream> {
        let text = self.contents[path].clone();
        Ok(stream::once(async { Ok(text.into()) }).boxed())
    }
}

#[async_trait]
impl Packages for Shelf {
    async fn unpack(&self, version: &VersionId) -> Result<Option<Arc<dyn Package>>> {
        let version = version.as_str();
        self.fetched.lock().push(version.to_owned());
        if self.damaged.lock().iter().any(|damaged| damaged == version) {
            return Err(Error::Invalid("the package is damaged".to_owned()));
        }
        let Some(files) = self.packages.lock().get(version).cloned() else { return Ok(None) };
        let mut entries = Vec::new();
        for (path, _) in &files {
            for (slash, _) in path.match_indices('/') {
                let path = path[..slash].to_owned();
                if entries.iter().all(|entry: &PackageEntry| entry.path != path) {
                    entries.push(PackageEntry { path, kind: EntryKind::Directory });
                }
            }
            entries.push(PackageEntry { path: path.clone(), kind: EntryKind::File { mode: 0o644 } });
        }
        Ok(Some(Arc::new(InMemory { entries, contents: files.into_iter().collect() })))
    }
}

/// A workspace, with everything around it.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    pub(crate) sandbox: Arc<Watched>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) leases: Arc<dyn LeaseStore>,
    pub(crate) terms: Terms,
    pub(crate) bootstrap: Vec<Arc<dyn Bootstrap>>,
    pub(crate) may_deploy: bool,
}

/// What a round is asked for.
#[derive(Clone, Default)]
pub(crate) struct Ask {
    pub(crate) mode: Mode,
    pub(crate) versions: Vec<String>,
    pub(crate) script: String,
    pub(crate) files: Vec<(String, String)>,
    pub(crate) seconds: Option<i64>,
}

impl Ask {
    pub(crate) fn versions(versions: &[&str]) -> Self {
        Self { versions: versions.iter().map(|version| (*version).to_owned()).collect(), ..Self::default() }
    }
    pub(crate) fn script(script: &str) -> Self {
        Self { script: script.to_owned(), ..Self::default() }
    }
    pub(crate) fn with_script(self, script: &str) -> Self {
        Self { script: script.to_owned(), ..self }
    }
    pub(crate) fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }
    pub(crate) fn files(names: &[&str]) -> Self {
        let files = names.iter().enumerate().map(|(number, name)| ((*name).to_owned(), number.to_string()));
        Self { files: files.collect(), ..Self::default() }
    }
}

impl Fixture {
    /// An empty workspace whose path has a quote and a space.
    pub(crate) fn new() -> Self {
        Self::with_home(|dir| dir.join("home"))
    }

    /// The same, with another home directory.
    pub(crate) fn with_home(home: impl FnOnce(&std::path::Path) -> PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("it's a place");
        let home = home(dir.path());
        std::fs::create_dir_all(&work).unwrap();
        let mut options = NoneOptions::new(Root::Shared(work));
        options.variables.insert("HOME".to_owned(), home.to_str().unwrap().to_owned());
        if home.starts_with(dir.path()) {
            std::fs::create_dir_all(&home).unwrap();
        }
        let sandbox = Watched {
            inner: Arc::new(NoneSandbox::open(options).unwrap()),
            calls: Mutex::default(),
            failing: Mutex::default(),
            slow_writes: Mutex::default(),
            late: Arc::default(),
            pretended: Mutex::default(),
        };
        Self {
            dir,
            sandbox: Arc::new(sandbox),
            shelf: Arc::default(),
            leases: Arc::new(LocalLeases::default()),
            terms: Terms::usual(),
            bootstrap: Vec::new(),
            may_deploy: true,
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("it's a place")
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.dir.path().join("home/.fastgpt/agent-skill-entrypoints/state.json")
    }

    pub(crate) fn state(&self) -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(self.state_file()).unwrap()).unwrap()
    }

    /// Writes a file below the workspace.
    pub(crate) fn plant(&self, path: &str, text: &str) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A file of the workspace; empty when it is not there.
    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.work().join(path)).unwrap_or_default()
    }

    /// Waits until `path` is there.
    pub(crate) async fn gets(&self, path: &str) {
        let there = async {
            while !self.has(path) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), there).await.expect("it never comes");
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.work().join(path).symlink_metadata().is_ok()
    }

    /// The names in `projects`.
    pub(crate) fn projects(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.work().join("projects")) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) async fn try_prepare(&self, ask: Ask) -> Result<Prepared> {
        let preparation = Preparation {
            mode: ask.mode,
            skills: ask
                .versions
                .into_iter()
                .map(|version_id| Selected {
                    skill_id: format!("skill-{}", &version_id[..version_id.len().min(24)]),
                    version_id,
                })
                .collect(),
            entrypoint: ask.script,
            files: ask.files.into_iter().map(|(name, text)| InputFile { name, bytes: text.into() }).collect(),
            deadline: deadline(ask.seconds.unwrap_or(30)),
        };
        let open = async {
            let sandbox: Arc<dyn Sandbox> = self.sandbox.clone();
            Ok(Round {
                site: Site::open(sandbox, UserId::parse("alice").unwrap()).await?,
                packages: self.may_deploy.then(|| self.shelf.clone() as Arc<dyn Packages>),
                bootstrap: self.bootstrap.clone(),
                listener: None,
            })
        };
        prepare(&self.leases, KEY, self.terms, open, preparation).await
    }

    pub(crate) async fn prepare(&self, ask: Ask) -> Prepared {
        self.try_prepare(ask).await.unwrap()
    }
}

/// The step of a name.
pub(crate) fn step<'a>(prepared: &'a Prepared, name: &str) -> &'a Step {
    prepared
        .steps
        .iter()
        .find(|step| step.name == name)
        .unwrap_or_else(|| panic!("{name}: {:?}", prepared.steps))
}
