//! [`LauncherConfig`]: how the launcher process is started and what its runs may do.

use std::path::PathBuf;

use policy::NetworkLimits;

use crate::tier::{Isolation, Tier};
use crate::walls::programs::{SEARCH_PATH, Whitelist};

/// How to start the launcher process and what its runs may do.
#[derive(Clone, Debug)]
pub struct LauncherConfig {
    /// The binary that calls [`launcher_main`](crate::launcher_main), usually `/proc/self/exe`.
    pub program: PathBuf,
    /// Its arguments: the hidden subcommand.
    pub arguments: Vec<String>,
    /// The floor.
    pub isolation: Isolation,
    /// Which programs may run.
    pub whitelist: Whitelist,
    /// Where they are looked for, in order.
    pub search_path: Vec<PathBuf>,
    /// Directories that every run may read besides the system's libraries and data.
    pub read_only: Vec<PathBuf>,
    /// Whether code is run from what runs can write to, as scripts of the tree and native parts of packages need it.
    /// Without namespaces a program that is mapped into an allowed one cannot be refused.
    pub code_in_trees: bool,
    /// Why runs are to live in no namespaces although the configuration allows it: they were tried and did not hold.
    pub without_namespaces: Option<String>,
    /// Whether control groups are made for runs where the host lets them be made.
    pub control_groups: bool,
    /// The port on their loopback address at which runs in namespaces find the egress proxy; `None` without one.
    pub proxy_port: Option<u16>,
    /// Whether runs may be in the network of the host.
    pub host_network: bool,
    /// How many network namespaces are kept for users and agents.
    pub networks: NetworkLimits,
}

impl LauncherConfig {
    /// The configuration of a service that is its own launcher: the default floor and search path.
    #[must_use]
    pub fn new(whitelist: Whitelist) -> Self {
        Self {
            program: "/proc/self/exe".into(),
            arguments: vec![crate::SUBCOMMAND.to_owned()],
            isolation: Isolation::default(),
            whitelist,
            search_path: SEARCH_PATH.map(PathBuf::from).to_vec(),
            read_only: Vec::new(),
            code_in_trees: true,
            without_namespaces: None,
            control_groups: true,
            proxy_port: None,
            host_network: false,
            networks: NetworkLimits::default(),
        }
    }

    pub(super) fn may_use_namespaces(&self) -> bool {
        self.isolation.maximum >= Tier::Namespaces
    }
}
