//! Commands in which the service takes part, and how changes went.

use sandbox::ErrorKind;
use sandbox::LiveSpec;
use sandbox::live::Order;
use sandbox::wire::live::Begin;
use sandbox::wire::response::Failed;
use sandbox::wire::{Request, Response};

use super::Machine;
use crate::runs::What;

impl Machine {
    /// Does what needs no answer; `false` for a request that has one.
    pub(super) fn order(&self, request: &Request) -> bool {
        if !self.is_live {
            return false;
        }
        match request {
            Request::Signal(asked) => self.runs.order(&asked.run, Order::Signal(asked.signal)),
            Request::Resize(asked) => self.runs.order(&asked.run, Order::Resize(asked.size)),
            Request::Ack(asked) => self.runs.acknowledge(&asked.run, asked.seq),
            Request::Kill(asked) => self.runs.kill(&asked.run),
            _ => return false,
        }
        true
    }

    /// Answers a request about a run, or about a change before it.
    pub(super) async fn take_part(&self, request: Request) -> Result<Response, Failed> {
        let outgoing = self.answers.outgoing();
        match request {
            Request::Begin(asked) => {
                let Begin { run, command, stdin_open, terminal } = asked;
                let is_collected = command.output_bytes_max.is_some() && !stdin_open && terminal.is_none();
                let spec = LiveSpec { command: self.spec(command)?, stdin_open, terminal };
                let what = if is_collected { What::AtItsEnd(spec.command) } else { What::AsItComes(spec) };
                self.runs.begin(&run, what, outgoing).await?;
            }
            Request::Attach(asked) => self.runs.attach(&asked.run, asked.after, outgoing)?,
            Request::Input(asked) => self.runs.feed(asked).await?,
            Request::Outcome(asked) => {
                let told = self.runs.outcomes().tell(&asked.request).await;
                let under_way = || Failed::new(ErrorKind::Timeout, "the change is still under way");
                return Ok(Response::Outcome(told.ok_or_else(under_way)?));
            }
            other => {
                let message = format!("unknown request type: {}", other.kind());
                return Err(Failed::new(ErrorKind::Invalid, message));
            }
        }
        Ok(Response::Ok)
    }
}
