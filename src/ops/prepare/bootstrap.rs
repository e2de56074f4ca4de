//! [`Bootstrap`]: what a platform sets up in a sandbox before anything else. It is the operator's, never a user's.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::entrypoint;
use super::place::{Placed, place};
use super::site::Site;
use super::steps::{Outcome, Steps};
use super::temporary::TEMPORARY;
use crate::config::BootstrapStep;
use crate::ops::error::Result;

/// A step that code registers in the service. Whether it repeats what it did before is its own affair.
#[async_trait]
pub trait Bootstrap: Send + Sync {
    /// The name that requests ask for it by.
    fn name(&self) -> &str;

    /// Does it, under the lease and before any file of the round is written. Tells how it ended, and a log.
    ///
    /// The future is dropped when the lease is lost. A step that cannot be taken back asks [`Site::confirm`] before.
    async fn run(&self, site: &Site, deadline: Duration) -> (Outcome, String);
}

/// A step of the configuration: files below the workspace first, then a command in it.
struct Configured(BootstrapStep);

#[async_trait]
impl Bootstrap for Configured {
    fn name(&self) -> &str {
        &self.0.name
    }

    async fn run(&self, site: &Site, deadline: Duration) -> (Outcome, String) {
        if let Err(error) = self.write_files(site).await {
            return (Outcome::Failed, format!("its files cannot be written: {error}"));
        }
        if self.0.command.is_empty() {
            return (Outcome::Done, String::new());
        }
        entrypoint::run(site, &self.0.command, "", deadline).await
    }
}

impl Configured {
    async fn write_files(&self, site: &Site) -> Result<()> {
        let mut files = Vec::new();
        for (path, content) in &self.0.files {
            if let Some((above, _)) = path.rsplit_once('/') {
                site.make_dir(above).await?;
            }
            files.push(Placed { path: path.clone(), bytes: Bytes::from(content.clone()) });
        }
        if files.is_empty() {
            return Ok(());
        }
        place(site, &format!("{TEMPORARY}bootstrap"), &files).await
    }
}

/// The steps of the configuration.
#[must_use]
pub fn configured(steps: &[BootstrapStep]) -> Vec<Arc<dyn Bootstrap>> {
    steps.iter().map(|step| Arc::new(Configured(step.clone())) as Arc<dyn Bootstrap>).collect()
}

/// Runs the steps that were asked for, in the order in which they were asked for.
pub(super) async fn run(site: &Site, wanted: &[Arc<dyn Bootstrap>], deadline: Duration, steps: &mut Steps) {
    for step in wanted {
        let begun = steps.begin(format!("bootstrap:{}", step.name()));
        site.confirm().await;
        let (outcome, log) = step.run(site, deadline).await;
        steps.end(begun, outcome, &log);
    }
}
