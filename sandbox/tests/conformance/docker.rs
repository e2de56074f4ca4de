//! Containers of the engine that `DOCKER_HOST` names, or the usual one, made from the image `FILESECBOX_DOCKER_IMAGE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sandbox::conformance::{Ability, Subject};
use sandbox::{AgentId, DockerOptions, DockerSandbox, ErrorKind, ExecSpec, Sandbox, SandboxExt, UserId};

pub(crate) struct Engine {
    options: DockerOptions,
    sandbox: Arc<DockerSandbox>,
    others: AtomicUsize,
    made: Mutex<Vec<DockerOptions>>,
}

fn agent() -> AgentId {
    AgentId::parse("demo").unwrap()
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
        let sandbox = DockerSandbox::connect(options.clone(), agent()).await;
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

    /// Removes all that was made, whichever laws held.
    pub(crate) async fn clean_up(&self) {
        let made = std::mem::take(&mut *self.made.lock());
        for options in made {
            let sandbox = DockerSandbox::connect(options, agent()).await.unwrap();
            let others = sandbox.for_agent(AgentId::parse("another").unwrap());
            others.remove_user(&UserId::parse("alice").unwrap()).await.unwrap();
            for user in ["alice", "bob", "nobody"] {
                sandbox.remove_user(&UserId::parse(user).unwrap()).await.unwrap();
            }
        }
    }

    /// Files outside the workspace, which only the container has, are there after an export, and calls wait for it.
    pub(crate) async fn an_export_keeps_the_whole_container(&self) {
        for volume in [true, false] {
            let sandbox = Arc::new(
                DockerSandbox::connect(DockerOptions { volume, ..self.options() }, agent()).await.unwrap(),
            );
            let alice = UserId::parse("alice").unwrap();
            let path = sandbox.workspace(&alice).await.unwrap().join("文件").unwrap();
            sandbox.write(&alice, &path, "kept".into()).await.unwrap();
            let run = |script: &str| {
                let (sandbox, alice, spec) = (sandbox.clone(), alice.clone(), ExecSpec::shell(script));
                async move { sandbox.exec(&alice, spec).await.unwrap() }
            };
            assert!(run("echo installed > ~/program").await.is_success());
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
            assert_eq!(run("cat ~/program").await.stdout_text(), "installed\n", "volume: {volume}");
            sandbox.export_and_import(&alice).await.unwrap();
            assert_eq!(run("cat ~/program /workspace/文件").await.stdout_text(), "installed\nkept");
        }
    }

    /// Files that one agent's commands leave are not there for another agent of the same user.
    pub(crate) async fn agents_of_a_user_share_no_container(&self) {
        let alice = UserId::parse("alice").unwrap();
        let another = self.sandbox.for_agent(AgentId::parse("another").unwrap());
        let own =
            self.sandbox.exec(&alice, ExecSpec::shell("echo own > ~/kept; sleep 300 & cat ~/kept")).await;
        assert_eq!(own.unwrap().stdout_text(), "own\n");
        let path = self.sandbox.workspace(&alice).await.unwrap().join("own-file").unwrap();
        self.sandbox.write(&alice, &path, "own".into()).await.unwrap();
        let look = ExecSpec::shell("cat ~/kept own-file; echo theirs > ~/kept; cat ~/kept");
        assert_eq!(another.exec(&alice, look).await.unwrap().stdout_text(), "theirs\n");
        assert!(another.read(&alice, &path).await.is_err());
        let again = self.sandbox.exec(&alice, ExecSpec::shell("cat ~/kept own-file")).await.unwrap();
        assert_eq!(again.stdout_text(), "own\nown");
    }

    /// A process that leaves its session, its parent and its environment behind ends with its run all the same, and one of
    /// another run does not.
    pub(crate) async fn what_leaves_everything_behind_ends_with_its_run(&self) {
        let alice = UserId::parse("alice").unwrap();
        // Other laws need processes of their own meanwhile.
        let sandbox = Arc::new(DockerSandbox::connect(self.options(), agent()).await.unwrap());
        let run = async |script: &str, seconds| {
            let spec = ExecSpec { timeout: Some(Duration::from_secs(seconds)), ..ExecSpec::shell(script) };
            sandbox.exec(&alice, spec).await.unwrap()
        };
        let count = async |name: &str| {
            let lines = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$file; echo; done 2>/dev/null";
            let count = format!("{lines} | grep -c '^sleep {name}'");
            run(&count, 60).await.stdout_text().trim().to_owned()
        };
        let other = {
            let (sandbox, alice) = (sandbox.clone(), alice.clone());
            tokio::spawn(async move { sandbox.exec(&alice, ExecSpec::shell("sleep 4711; echo over")).await })
        };
        while count("4711").await != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let leave = "env -i /bin/sh -c '(setsid sleep 4712 >/dev/null 2>&1 </dev/null &) &'";
        let ended = run(&format!("{leave}; sleep 0.3; echo done"), 60).await;
        assert_eq!((ended.stdout_text().as_ref(), ended.timed_out), ("done\n", false));
        assert_eq!(count("4712").await, "0", "after an ordinary end");
        assert!(run(&format!("{leave}; sleep 300"), 1).await.timed_out);
        assert_eq!(count("4712").await, "0", "after the deadline");
        run(&format!("{leave}; sleep 0.3; kill -9 $PPID; sleep 300"), 60).await;
        assert_eq!(count("4712").await, "0", "after the end of the shell that would have ended it");
        assert_eq!(count("4711").await, "1", "that of another run is still there");
        other.abort();
        // Ones that make others without end, until the container takes no more: the first process makes none then, so that
        // the run ends by its deadline and not by a shell that cannot fork.
        let bomb = "b() { b & b & wait; }; (b >/dev/null 2>&1 &); exec sleep 300";
        assert!(run(bomb, 2).await.timed_out);
        Self::few_are_left(&sandbox, "one process group").await;
        let sessions =
            "echo 'setsid sh ~/b & setsid sh ~/b & wait' >~/b; (sh ~/b >/dev/null 2>&1 &); exec sleep 300";
        assert!(run(sessions, 2).await.timed_out);
        Self::few_are_left(&sandbox, "a session for each").await;
    }

    /// A minute or two from now hardly a process is in the container of `alice`.
    async fn few_are_left(sandbox: &DockerSandbox, what: &str) {
        let alice = UserId::parse("alice").unwrap();
        let ended = std::time::Instant::now();
        loop {
            match sandbox.exec(&alice, ExecSpec::shell("set -- /proc/[0-9]*; echo $#")).await {
                // While the container is full of what is being killed, a command may not start, and says nothing.
                Ok(result)
                    if result.stdout_text().trim().parse().is_ok_and(|processes: u32| processes <= 12) =>
                {
                    return;
                }
                Ok(_) => {}
                // It was ended as a whole, because nothing could be started in it.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}"),
            }
            assert!(
                ended.elapsed() < Duration::from_secs(120),
                "{what}: the processes of the run do not end"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A container that no call uses stops, and starts with the next call.
    pub(crate) async fn an_idle_container_stops_and_starts_again(&self) {
        let options = DockerOptions { idle: Duration::from_millis(300), ..self.options() };
        let sandbox = DockerSandbox::connect(options, agent()).await.unwrap();
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

    /// The limits of a container: no more memory, processes and rights than configured.
    pub(crate) async fn a_container_has_no_rights_and_bounds(&self) {
        let alice = UserId::parse("alice").unwrap();
        let run = async |script: &str| self.sandbox.exec(&alice, ExecSpec::shell(script)).await.unwrap();
        let status = run("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t '").await;
        let none = "0000000000000000";
        assert_eq!(status.stdout_text(), format!("CapEff:{none}\nCapBnd:{none}\nNoNewPrivs:1\n"));
        let ids = run("id -u; id -G | wc -w; touch /bin/x /x 2>/dev/null && echo made; stat -c %u . ~").await;
        assert_eq!(ids.stdout_text(), "10001\n1\n10001\n10001\n");
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
        use Ability::{Changes, Closing, Commands, Huge, Links, Live, Modes, Pipes, Versions, Walls};
        &[Changes, Closing, Commands, Huge, Links, Live, Modes, Pipes, Versions, Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.sandbox.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(DockerSandbox::connect(self.options(), agent()).await.unwrap())
    }
}
