//! What a program that embeds the service adds to preparing: steps of code, and a store of leases.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use filesecbox::ops::error::{Error, Initialising};
use filesecbox::ops::lease::{LeaseStore, LocalLeases};
use filesecbox::ops::preparations::{Deploying, Wanted};
use filesecbox::ops::prepare::{Bootstrap, InputFile, Mode, Outcome, Preparation, Prepared, Site};
use filesecbox::ops::tree::Tree;
use parking_lot::Mutex;
use policy::TreeId;
use sandbox::AgentId;

use crate::host::Host;

/// A step that notes whether the lease is held and a file of the user is there already.
struct Mirror {
    leases: Arc<dyn LeaseStore>,
    user_files: std::path::PathBuf,
    seen: Mutex<Vec<(bool, bool)>>,
}

const KEY: &str = "agent-sandbox:init:hooked/demo";

#[async_trait]
impl Bootstrap for Mirror {
    fn name(&self) -> &str {
        "mirror"
    }

    async fn run(&self, _site: &Site, _deadline: Duration) -> (Outcome, String) {
        let is_held = self.leases.acquire(KEY, "another", Duration::from_secs(1)).await.unwrap().is_none();
        self.seen.lock().push((is_held, self.user_files.exists()));
        (Outcome::Done, "set up".to_owned())
    }
}

async fn prepare(host: &Host, bootstrap: &[&str]) -> filesecbox::ops::Result<Prepared> {
    let (user, agent) = (sandbox::UserId::parse("hooked").unwrap(), AgentId::parse("demo").unwrap());
    let preparation = Preparation {
        mode: Mode::Run,
        files: vec![InputFile { name: "a".to_owned(), bytes: "a".into() }],
        deadline: Duration::from_secs(30),
        ..Preparation::default()
    };
    let bootstrap = bootstrap.iter().map(|name| (*name).to_owned()).collect();
    let wanted = Wanted { preparation, bootstrap, deploying: Deploying::Allowed, listener: None };
    Tree::of(&host.service, TreeId::Workspace(user, agent)).prepare(wanted).await
}

pub(crate) async fn steps_of_code_come_first_under_the_lease_of_the_given_store(host: Arc<Host>) {
    let leases: Arc<dyn LeaseStore> = Arc::new(LocalLeases::default());
    let user_files = host.root.join("sandbox/hooked/demo/user_files");
    let mirror =
        Arc::new(Mirror { leases: leases.clone(), user_files: user_files.clone(), seen: Mutex::default() });
    let unknown = prepare(&host, &["mirror"]).await;
    assert!(matches!(unknown, Err(Error::Invalid(_))), "{unknown:?}");
    host.service.preparations().register(mirror.clone());
    host.service.preparations().lease_from(leases.clone());
    let prepared = prepare(&host, &["mirror"]).await.unwrap();
    assert_eq!(*mirror.seen.lock(), [(true, false)], "under the lease, before any file");
    assert_eq!(
        (prepared.steps[0].name.as_str(), prepared.steps[0].log.as_str()),
        ("bootstrap:mirror", "set up")
    );
    assert!(user_files.join("a").exists());
    // A round that does not name it runs without it.
    prepare(&host, &[]).await.unwrap();
    assert_eq!(mirror.seen.lock().len(), 1);
    // The given store alone decides.
    assert!(leases.acquire(KEY, "another", Duration::from_secs(60)).await.unwrap().is_some());
    let refused = prepare(&host, &[]).await;
    assert!(matches!(refused, Err(Error::Initialising { why: Initialising::Elsewhere, .. })), "{refused:?}");
    assert!(leases.release(KEY, "another").await.unwrap());
}
