//! `filesecbox mcp`: MCP over standard input and output, for desktop clients. It is a bridge to the service's own route for MCP.
//!
//! | File | Holds |
//! | --- | --- |
//! | `lines` | the lines of standard input, each of bounded length |
//! | `message` | one line of the client: a request to pass on, or one to cancel |
//! | `upstream` | the service, and one request to it |
//! | `events` | the messages in a stream of events |
//! | `answer` | the answer of the service as messages for the client |
//! | `bridge` | requests that are under way, until standard input ends |
//! | `inside` | a service that lives as long as the bridge |

mod answer;
mod bridge;
mod events;
mod inside;
mod lines;
mod message;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::inside::Inside;
use self::upstream::Upstream;
use super::Outcome;
use super::target::Owner;

/// Speak MCP over standard input and output, about a workspace of a running service
///
/// Each line of standard input is a message, and so is each line of standard output. The program ends when standard input ends.
#[derive(Args)]
pub(super) struct McpArgs {
    #[command(flatten)]
    owner: Owner,
    /// Start a service with this data directory, which stops with this program, instead of asking a running one
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Configuration file of that service
    #[arg(long, value_name = "FILE", requires = "root")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &McpArgs) -> Outcome {
    let inside = args.root.as_deref().map(|root| Inside::start(root, args.config.as_deref())).transpose()?;
    let server = &args.owner.server;
    let upstream = match &inside {
        Some(inside) => Upstream::new(&inside.url, Some(&inside.token), None, &args.owner)?,
        None => {
            Upstream::new(&server.server, server.token.as_deref(), server.ca_file.as_deref(), &args.owner)?
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let input = lines::read(std::io::BufReader::new(std::io::stdin()));
    let done = runtime.block_on(bridge::run(upstream, input, std::io::stdout()));
    // A name that is being resolved does not hold up the end.
    runtime.shutdown_background();
    drop(inside);
    done?;
    Ok(ExitCode::SUCCESS)
}
