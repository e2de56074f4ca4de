//! One call of a tool: a fresh session, the run that ends with its caller, progress.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use agent::tools::shell::{CD_TIP, TIMEOUT_DEFAULT_SECONDS};
use agent::tools::{Context, Search, Session, ToolOutput};
use futures_util::FutureExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use sandbox::SandboxPath;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::handler::Handler;
use super::offer::{DIRECTORY, Offer};
use super::record::Record;
use super::refusal;
use crate::metrics::CallOutcome;
use crate::ops::Error;

/// How long a call lasts before its progress is told.
const FIRST_PROGRESS: Duration = Duration::from_secs(1);
/// How often it is told.
const PROGRESS: Duration = Duration::from_secs(2);
/// Characters of an unknown tool's name that are told again.
const NAME_CHARACTERS: usize = 80;
/// In the place of the advice to use *Cd*, which is not offered.
const DIRECTORY_TIP: &str =
    "\n\nTip: `cd` lasts for this command only; send `directory` to begin in another directory.";

impl Handler {
    /// Does `work` in one of the places that the user has, until its caller leaves or the service stops. The place is taken
    /// until the answer has left.
    pub(super) async fn attend<T>(
        &self,
        caller: &CancellationToken,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        let place = self.mcp.calls.take(&self.target.user).await.map_err(|error| refusal::of(&error))?;
        self.held.hold(place);
        // In a task of the SDK a panic would leave the caller without an answer.
        let work = AssertUnwindSafe(work).catch_unwind();
        tokio::select! {
            biased;
            () = caller.cancelled() => Err(refusal::cancelled()),
            done = work => done.unwrap_or_else(|_| Err(refusal::of(&Error::Panicked))),
            () = self.mcp.service.stopped() => Err(refusal::stopping()),
        }
    }

    /// Does a call. The caller who leaves ends it, with what it runs.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let offer = self.offer(&request.name)?;
        let arguments = request.arguments.unwrap_or_default();
        let total = deadline(&arguments);
        let progress = async {
            if let Some(token) = context.meta.get_progress_token().filter(|_| offer.changes) {
                tell_progress(&context.peer, token, total).await;
            }
            // Whoever takes no progress may still take the answer.
            std::future::pending::<()>().await;
        };
        let run = async {
            tokio::select! {
                result = self.run(offer, arguments) => result,
                () = progress => Err(refusal::cancelled()),
            }
        };
        let counted = self.mcp.service.metrics().mcp.begin(offer.name);
        let result = self.attend(&context.ct, run).await;
        match &result {
            Ok(result) if result.is_error == Some(true) => counted.end(CallOutcome::Refused),
            Ok(_) => counted.end(CallOutcome::Ok),
            Err(_) if context.ct.is_cancelled() => counted.end(CallOutcome::Unanswered),
            Err(_) => counted.end(CallOutcome::Failed),
        }
        result
    }

    /// The tool of a name, among those of the caller.
    fn offer(&self, name: &str) -> Result<&'static Offer, ErrorData> {
        if let Some(offer) = self.mcp.offers(&self.target).find(|offer| offer.name == name) {
            return Ok(offer);
        }
        let names: Vec<&str> = self.mcp.offers(&self.target).map(|offer| offer.name).collect();
        let name: String = name.escape_debug().take(NAME_CHARACTERS).collect();
        Err(refusal::invalid(format!("there is no tool `{name}`: use one of {}", names.join(", "))))
    }

    async fn run(
        &self,
        offer: &'static Offer,
        mut arguments: JsonObject,
    ) -> Result<CallToolResult, ErrorData> {
        let target = &self.target;
        let session = Session::new(target.user.clone(), SandboxPath::workspace());
        if offer.takes_directory
            && let Some(directory) = arguments.remove(DIRECTORY)
            && let Err(text) = enter(&session, &directory)
        {
            return Ok(CallToolResult::error(vec![ContentBlock::text(text)]));
        }
        let record = match offer.changes {
            true => Some(Record::begin(&self.mcp, target, offer, changed_path(&session, &arguments))),
            false => None,
        };
        let record = record.transpose().map_err(refusal::unwritable)?;
        let sandbox = (self.mcp.workspaces)(self.mcp.service.clone(), target.agent.clone());
        // Not by programs: what reads runs no command, which its caller may not be allowed to.
        let context = Context { search: Search::Files, ..Context::new(&*sandbox, &session) };
        let arguments = Value::Object(arguments).to_string();
        let output = self.mcp.toolbox.call(&context, offer.name, &arguments).await;
        if let Some(record) = record {
            record.end(&output).await.map_err(refusal::unwritable)?;
        }
        Ok(result(output))
    }
}

/// Begins in `directory`.
///
/// # Errors
/// The text for the model.
fn enter(session: &Session, directory: &Value) -> Result<(), String> {
    let Some(text) = directory.as_str() else {
        return Err(format!("Error: `{DIRECTORY}` is no text: send a path in the workspace"));
    };
    let path = session.resolve(text).map_err(|refusal| format!("Error: {refusal}"))?;
    // What is resolved is in the workspace.
    session.enter(path);
    Ok(())
}

/// The file that a call of *Edit* names, as its tree has it.
fn changed_path(session: &Session, arguments: &JsonObject) -> Option<String> {
    let path = session.resolve(arguments.get("path")?.as_str()?).ok()?;
    path.below(session.workspace()).filter(|path| !path.is_empty()).map(str::to_owned)
}

fn result(output: ToolOutput) -> CallToolResult {
    let text = match output.text.strip_suffix(CD_TIP) {
        Some(text) => format!("{text}{DIRECTORY_TIP}"),
        None => output.text,
    };
    let content = vec![ContentBlock::text(text)];
    if output.is_error {
        return CallToolResult::error(content);
    }
    let mut result = CallToolResult::success(content);
    result.structured_content = output.data;
    result
}

/// How long a command may take, in seconds, as far as its caller says.
fn deadline(arguments: &JsonObject) -> u64 {
    arguments.get("timeout").and_then(Value::as_u64).unwrap_or(TIMEOUT_DEFAULT_SECONDS)
}

/// Tells the seconds since the call began, again and again. It ends when its caller has left.
async fn tell_progress(peer: &Peer<RoleServer>, token: ProgressToken, total_seconds: u64) {
    let begin = Instant::now();
    let mut ticks = interval_at(begin + FIRST_PROGRESS, PROGRESS);
    // Each value is larger than the one before.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let told = ProgressNotificationParam::new(token.clone(), seconds(begin.elapsed().as_secs()))
            .with_total(seconds(total_seconds));
        if peer.notify_progress(told).await.is_err() {
            return;
        }
    }
}

/// A number of seconds as the wire has numbers.
fn seconds(whole: u64) -> f64 {
    u32::try_from(whole).map_or(f64::from(u32::MAX), f64::from)
}
