//! [`Record`]: the audit record of a call that may change something, with room for it before the call.

use agent::tools::ToolOutput;

use super::Mcp;
use super::offer::Offer;
use super::target::{Sender, Target};
use crate::audit::record::{now, tree_name};
use crate::audit::{Account, Effect, Entry, Slot, UNANSWERED, Unwritable};
use policy::TreeId;

/// The outcome of a call that the tool refused; why is in the text for the model.
const REFUSED: &str = "refused";

/// A call that is under way. Dropping it records that its caller has left.
pub(super) struct Record {
    slot: Slot,
    account: Account,
    entry: Entry,
}

impl Record {
    /// Makes room for the record of a call. `path` is the file that is to be changed.
    ///
    /// # Errors
    /// [`Unwritable`]: nothing is to be changed.
    pub(super) fn begin(
        mcp: &Mcp,
        target: &Target,
        offer: &Offer,
        path: Option<String>,
    ) -> Result<Self, Unwritable> {
        let Sender { role, token, account, request, caller_request } = target.sender.clone();
        let audit = mcp.service.audit();
        audit.admit(&account)?;
        let mut slot = audit.reserve()?;
        let entry = Entry {
            request: Some(request),
            caller_request,
            role: Some(role.to_owned()),
            token: Some(token),
            user: Some(target.user.to_string()),
            tree: Some(tree_name(&TreeId::Workspace(target.user.clone(), target.agent.clone()))),
            paths: path.into_iter().map(Into::into).collect(),
            // As of any run: the program, never what it is given.
            program: (offer.name == "Shell").then(|| "bash".to_owned()),
            ..Entry::of_service(&format!("mcp {}", offer.name))
        };
        let (of_left, left) = (account.clone(), entry.clone());
        slot.expect(move || (of_left, Entry { time: now(), outcome: UNANSWERED.to_owned(), ..left }));
        Ok(Self { slot, account, entry })
    }

    /// Records how the call ended.
    ///
    /// # Errors
    /// [`Unwritable`]: what was changed is, but its record is not written.
    pub(super) async fn end(self, output: &ToolOutput) -> Result<(), Unwritable> {
        let is_refused = output.is_error && self.entry.program.is_none();
        let effect = if is_refused { Effect::Nothing } else { Effect::Change };
        let outcome = if output.is_error { REFUSED } else { "ok" };
        let entry = Entry { time: now(), outcome: outcome.to_owned(), ..self.entry };
        self.slot.charge(&self.account, effect, entry).await
    }
}
