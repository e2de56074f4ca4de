//! `filesecbox token`: tokens for users, signed where the key is, and revoked at a running service.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use policy::{AgentId, UserId};

use super::target::{Server, say};
use super::{Outcome, ServeArgs};
use crate::access::now;
use crate::access::signed::{Claims, Keys};

#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Print a signed token that lets its bearer reach one user's trees until it expires
    ///
    /// Reads the key file of the configuration, which the service makes at its first start.
    Issue(IssueArgs),
    /// Revoke a signed token, or all of a user, at a running service
    Revoke(RevokeArgs),
}

#[derive(Args)]
#[group(id = "revoked", required = true, multiple = false, args = ["id", "user"])]
pub(super) struct RevokeArgs {
    #[command(flatten)]
    server: Server,
    /// The id of the token, as logs and its issuer have it
    id: Option<String>,
    /// All tokens of this user that were issued until now
    #[arg(long, short, value_name = "USER")]
    user: Option<String>,
}

#[derive(Args)]
pub(super) struct IssueArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// The user whose trees the token reaches
    #[arg(long, short, value_name = "USER")]
    user: String,
    /// With this agent only
    #[arg(long, short, value_name = "AGENT")]
    agent: Option<String>,
    /// How long it counts: a number of seconds, or with `s`, `m`, `h` or `d`
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    ttl: u64,
}

pub(super) fn run(command: TokenCommand) -> Outcome {
    match command {
        TokenCommand::Issue(args) => issue(&args),
        TokenCommand::Revoke(args) => revoke(&args),
    }
}

fn issue(args: &IssueArgs) -> Outcome {
    let config = args.serve.config()?;
    let sources = args.serve.sources(&config)?;
    let most = config.access.token_seconds_max;
    if args.ttl == 0 || args.ttl > most {
        return Err(format!(
            "`--ttl` is {} s: 1 to {most} is possible (`access.token_seconds_max`)",
            args.ttl
        )
        .into());
    }
    let user = UserId::parse(&args.user)?;
    let agent = args.agent.as_deref().map(AgentId::parse).transpose()?;
    let keys = Keys::read(sources.key_file())?;
    let token = keys.sign(&Claims::new(user, agent, now(), args.ttl)?).ok_or("the key file has no key")?;
    writeln!(std::io::stdout(), "{token}")?;
    Ok(ExitCode::SUCCESS)
}

fn revoke(args: &RevokeArgs) -> Outcome {
    let client = args.server.client()?;
    let url = match (&args.id, &args.user) {
        (Some(id), _) => client.url(&["v1", "tokens", id], &[]),
        (None, user) => client.url(&["v1", "tokens"], &[("user", user.as_deref().unwrap_or_default())]),
    };
    say(&client.data::<String>(client.delete(&url)?)?);
    Ok(ExitCode::SUCCESS)
}

/// A time on the command line, in seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is no time: write a number of seconds, or such as `90s`, `15m`, `12h`, `30d`");
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 's' | 'm' | 'h' | 'd')) => text.split_at(at),
        _ => (text, "s"),
    };
    let factor = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 1,
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_with_a_unit() {
        for (text, expected) in [("90", 90), ("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for wrong in ["", "s", "1w", "-1", "1.5h", "99999999999999999999", "999999999999999999d", "天"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
