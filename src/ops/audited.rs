//! Reading the audit log.

use std::sync::Arc;

use policy::UserId;

use super::Service;
use super::admission::{Job, Weight};
use super::error::{Error, Result};
use crate::audit::page::Page;

/// Which records are asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// Behind this number.
    pub after: u64,
    /// About trees of this user.
    pub user: Option<UserId>,
    /// With this action.
    pub action: Option<String>,
    /// So many at most.
    pub most: usize,
}

impl Service {
    /// The records that `question` asks for, oldest first: what a bound in bytes allows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where nothing is recorded; those of reading files.
    pub async fn audited(&self, question: Question) -> Result<Page> {
        let audit = Arc::clone(&self.audit);
        let job = Job::about(None, Weight::Scan);
        self.work(job, move || {
            let Question { after, user, action, most } = question;
            let page = audit.page(after, most, &|entry| {
                user.as_ref().is_none_or(|user| entry.user.as_deref() == Some(user.as_str()))
                    && action.as_ref().is_none_or(|action| entry.action == *action)
            });
            page?.ok_or_else(|| {
                Error::Unsupported("this service keeps no audit log: `audit.enabled`".to_owned())
            })
        })
        .await
    }
}
