//! The audit log of what is changed in this process: as of requests, with room for the record before the change.

use sandbox::{Error, Result};

use super::errors;
use super::store_path::At;
use crate::access::Role;
use crate::audit::record::tree_name;
use crate::audit::{Account, Effect, Entry, UNANSWERED};
use crate::ops::Service;

/// Bytes of a program's name that are kept.
const PROGRAM_BYTES_MAX: usize = 64;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Records {
    /// Each change by itself.
    EachChange,
    /// Nothing here: the changes are a request's, which is recorded as one.
    OfRequest,
}

/// The record of a change before its end.
pub(super) fn entry(operation: &'static str, at: &At) -> Entry {
    let paths = if at.path.is_root() { Vec::new() } else { vec![at.path.to_string().into()] };
    Entry {
        role: Some(Role::Engine.word().to_owned()),
        user: Some(at.tree.user().to_string()),
        tree: Some(tree_name(&at.tree)),
        paths,
        ..Entry::of_service(operation)
    }
}

/// The record of a command before its end: the program, never its arguments.
pub(super) fn entry_of_command(at: &At, program: &str) -> Entry {
    let program = program.char_indices().take_while(|(start, _)| *start < PROGRAM_BYTES_MAX);
    let program = Some(program.map(|(_, character)| character).collect());
    Entry { program, paths: Vec::new(), ..entry("exec", at) }
}

/// Makes a change, not without room for a record about it.
pub(super) async fn recorded<T>(
    (service, records): (&Service, Records),
    operation: &'static str,
    entry: Entry,
    change: impl Future<Output = Result<T>>,
) -> Result<T> {
    if records == Records::OfRequest {
        return change.await;
    }
    let account = Account::Token(Role::Engine.word().to_owned(), entry.user.clone());
    service.audit().admit(&account).map_err(|error| errors::unwritable(operation, error))?;
    let mut slot = service.audit().reserve().map_err(|error| errors::unwritable(operation, error))?;
    let of_left = Entry { outcome: UNANSWERED.to_owned(), ..entry.clone() };
    let of_account = account.clone();
    slot.expect(move || (of_account, of_left));
    let changed = change.await;
    let outcome = changed.as_ref().map_err(Error::kind).map_or_else(|kind| kind.as_str(), |_| "ok");
    let effect = match &changed {
        Err(error) if entry.program.is_none() && errors::is_refusal(error.kind()) => Effect::Nothing,
        _ => Effect::Change,
    };
    let entry = Entry { outcome: outcome.to_owned(), ..entry };
    let written = slot.charge(&account, effect, entry).await;
    written.map_err(|error| errors::unwritable(operation, error))?;
    changed
}
