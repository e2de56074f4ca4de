//! [`DockerOptions`]: from what containers are made, and what they may take.

use std::time::Duration;

/// How a [`DockerSandbox`](crate::DockerSandbox) makes its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerOptions {
    /// The socket of the engine.
    pub socket: String,
    /// The image: anything with a POSIX shell and the usual tools (`stat`, `find`, `mktemp`, `truncate`, `grep`), such as
    /// `debian:trixie-slim` or `alpine`. It must be there; nothing is pulled.
    pub image: String,
    /// Begins the names of containers, volumes and images, and tells apart those of several services.
    pub prefix: String,
    /// The user id of everything in the container, and the group id of what calls make there. The image need not know
    /// it. 0 is root without any capability.
    pub uid: u32,
    /// Whether the workspace is a volume, which outlives its container. Else it is a part of the container.
    pub volume: bool,
    /// The network of containers: `none`, `bridge`, or a network by name.
    pub network: String,
    /// The most memory of a container, in bytes.
    pub memory_bytes: i64,
    /// The most processes in a container.
    pub processes: i64,
    /// After this without a call a container is stopped.
    pub idle: Duration,
    /// The longest that a command may take.
    pub timeout_max: Duration,
    /// How long a call waits while its container is made, started or exported.
    pub wait: Duration,
    /// The shell for scripts.
    pub shell: String,
}

/// The user id of containers, unless said otherwise; the service's image has the same.
const UID: u32 = 10_001;

impl DockerOptions {
    /// Containers of `image` in the engine at the usual socket, without a network.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            socket: "/var/run/docker.sock".to_owned(),
            image: image.into(),
            prefix: "filesecbox-sandbox".to_owned(),
            uid: UID,
            volume: true,
            network: "none".to_owned(),
            memory_bytes: 1 << 30,
            processes: 512,
            idle: Duration::from_secs(30 * 60),
            timeout_max: Duration::from_secs(600),
            wait: Duration::from_secs(120),
            shell: "/bin/sh".to_owned(),
        }
    }
}
