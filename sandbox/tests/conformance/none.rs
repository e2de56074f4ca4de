//! The host itself, in a temporary directory.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject};
use sandbox::{NoneOptions, NoneSandbox, Root, Sandbox};
use tempfile::TempDir;

pub(crate) struct Host {
    abilities: Vec<Ability>,
    sandbox: Arc<NoneSandbox>,
    root: TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        use Ability::{Changes, Closing, Commands, Huge, Links, Live, Modes, Pipes, Versions, Walls};
        let mut abilities = vec![Changes, Closing, Commands, Huge, Links, Live, Pipes, Versions, Walls];
        if !rustix::process::geteuid().is_root() {
            abilities.push(Modes);
        }
        let root = tempfile::tempdir().unwrap();
        let options = NoneOptions::new(Root::PerUser(root.path().join("users")));
        Self { abilities, sandbox: Arc::new(NoneSandbox::open(options).unwrap()), root }
    }
}

#[async_trait]
impl Subject for Host {
    fn abilities(&self) -> &[Ability] {
        &self.abilities
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.sandbox.clone()
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        let place = tempfile::tempdir_in(self.root.path()).unwrap().keep();
        Arc::new(NoneSandbox::open(NoneOptions::new(Root::PerUser(place))).unwrap())
    }
}
