//! Containers of the engine that `DOCKER_HOST` names, or the usual one, made from the image `FILESECBOX_DOCKER_IMAGE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sandbox::conformance::{Ability, Subject};
use sandbox::{DockerOptions, DockerSandbox, ExecSpec, Sandbox, SandboxExt, UserId};

pub(crate) struct Engine {
    options: DockerOptions,
    sandbox: Arc<DockerSandbox>,
    others: AtomicUsize,
    made: Mutex<Vec<DockerOptions>>,
}

impl Engine {
    /// An engine that answers; else says why there is none.
    pub(crate) async fn find() -> Result<Self, String> {
        let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
        let socket = host.strip_prefix("unix://").ok_or("DOCKER_HOST is no socket of this host")?;
        let image = std::env::var("FILESECBOX_DOCKER_IMAGE");
        let image = image.map_err(|_| "FILESECBOX_DOCKER_IMAGE names no image to begin with")?;
        let options = DockerOptions {
            socket: socket.to_owned(),
            prefix: format!("filesecbox-conformance-{}", std::process::id()),
            ..DockerOptions::new(image)
        };
        let sandbox = DockerSandbox::connect(options.clone()).await;
        let sandbox = Arc::new(sandbox.map_err(|error| error.to_string())?);
        Ok(Self { made: Mutex::new(vec![options.clone()]), options, sandbox, others: AtomicUsize::new(0) })
    }

    fn options(&self) -> DockerOptions {
        let number = self.others.fetch_add(1, Ordering::Relaxed);
        let options =
            DockerOptions { prefix: format!("{}-{number}", self.options.prefix), ..self.options.clone() };
        self.made.lock().push(options.clone());
        options
    }

    /// Removes all that was made, whatever held.
    pub(crate) async fn clean_up(&self) {
        let made = std::mem::take(&mut *self.made.lock());
        for options in made {
            let sandbox = DockerSandbox::connect(options).await.unwrap();
            for user in ["alice", "bob", "nobody"] {
                sandbox.remove_user(&UserId::parse(user).unwrap()).await.unwrap();
            }
        }
    }

    /// Files outside the workspace, which only the container has, are there after an export, and calls wait for it.
    pub(crate) async fn an_export_keeps_the_whole_container(&self) {
        for volume in [true, false] {
            let sandbox =
                Arc::new(DockerSandbox::connect(DockerOptions { volume, ..self.options() }).await.unwrap());
            let alice = UserId::parse("alice").unwrap();
            let path = sandbox.workspace(&alice).await.unwrap().join("文件").unwrap();
            sandbox.write(&alice, &path, "kept".into()).await.unwrap();
            let run = |script: &str| {
                let (sandbox, alice, spec) = (sandbox.clone(), alice.clone(), ExecSpec::shell(script));
                async move { sandbox.exec(&alice, spec).await.unwrap() }
            };
            assert!(run("echo installed > /opt/program").await.is_success());
            let exporting = tokio::spawn({
                let (sandbox, alice) = (sandbox.clone(), alice.clone());
                async move { sandbox.export_and_import(&alice).await }
            });
            while !sandbox.is_exporting(&alice) && !exporting.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(sandbox.read(&alice, &path).await.unwrap(), "kept", "volume: {volume}");
            exporting.await.unwrap().unwrap();
            assert!(!sandbox.is_exporting(&alice));
            assert_eq!(run("cat /opt/program").await.stdout_text(), "installed\n", "volume: {volume}");
            sandbox.export_and_import(&alice).await.unwrap();
            assert_eq!(run("cat /opt/program /workspace/文件").await.stdout_text(), "installed\nkept");
        }
    }

    /// A container that nobody uses stops, and starts with the next call.
    pub(crate) async fn an_idle_container_stops_and_starts_again(&self) {
        let options = DockerOptions { idle: Duration::from_millis(300), ..self.options() };
        let sandbox = DockerSandbox::connect(options).await.unwrap();
        let alice = UserId::parse("alice").unwrap();
        let path = sandbox.workspace(&alice).await.unwrap().join("file").unwrap();
        sandbox.write(&alice, &path, "kept".into()).await.unwrap();
        // The start of its first process, as the container's own clock has it.
        let first = ExecSpec::shell("stat -c %Y /proc/1; cut -d' ' -f22 /proc/1/stat");
        let before = sandbox.exec(&alice, first.clone()).await.unwrap().stdout;
        // Each look uses the container, so looks are far apart.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            if sandbox.exec(&alice, first.clone()).await.unwrap().stdout != before {
                assert_eq!(sandbox.read(&alice, &path).await.unwrap(), "kept");
                return;
            }
        }
        panic!("the container never stopped");
    }

    /// What a container may not: more memory, more processes, more rights.
    pub(crate) async fn a_container_has_no_rights_and_bounds(&self) {
        let alice = UserId::parse("alice").unwrap();
        let run = async |script: &str| self.sandbox.exec(&alice, ExecSpec::shell(script)).await.unwrap();
        let status = run("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t '").await;
        let none = "0000000000000000";
        assert_eq!(status.stdout_text(), format!("CapEff:{none}\nCapBnd:{none}\nNoNewPrivs:1\n"));
        let network = run("ls /sys/class/net").await;
        assert_eq!(network.stdout_text(), "lo\n");
        // A tenth more than it may have.
        let hog = run("head -c 1200000000 /dev/zero | tail -c 1200000000 | wc -c").await;
        assert_ne!(hog.stdout_text().trim(), "1200000000");
        let bound = run("cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null").await;
        assert_eq!(bound.stdout_text().trim(), "512");
    }
}

#[async_trait]
impl Subject for Engine {
    fn abilities(&self) -> &[Ability] {
        // `Modes`: root without capabilities is held by permission bits.
        use Ability::{Changes, Closing, Commands, Huge, Links, Modes, Pipes, Walls};
        &[Changes, Closing, Commands, Huge, Links, Modes, Pipes, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.sandbox.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(DockerSandbox::connect(self.options()).await.unwrap())
    }
}
