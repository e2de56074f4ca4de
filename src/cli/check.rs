//! `filesecbox check-config`: everything that a start checks before it touches anything.

use std::io::Write;
use std::process::ExitCode;

use policy::CommandPolicy;
use policy::environment::Configured;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Outcome, ServeArgs};
use crate::access::now;
use crate::access::signed::Keys;
use crate::ops::bucket::Bucket;
use crate::ops::preparations::leases;

/// How long before its end a token is said to expire soon, in seconds.
const SOON_SECONDS: u64 = 14 * 24 * 3600;

/// Checks the configuration and tells what it comes to.
pub(super) fn run(args: &ServeArgs) -> Outcome {
    let config = args.config()?;
    config.check_values()?;
    let sources = args.sources(&config)?;
    let tokens = sources.tokens()?;
    config.check_open(!tokens.is_empty())?;
    if !config.access.key_file.as_os_str().is_empty() {
        Keys::read(sources.key_file())?;
    }
    Configured::new(config.commands.environment.clone().into_iter().collect())?;
    CommandPolicy::new(config.commands.profile, &config.commands.extra)?;
    config.egress()?;
    leases(&config.prepare)?;
    Bucket::open(&config.prepare.bucket)?;
    let mut out = std::io::stdout();
    writeln!(out, "the configuration can be served")?;
    writeln!(out, "listen   {}", config.listen)?;
    writeln!(out, "root     {}", config.root.display())?;
    writeln!(out, "tokens   {}", tokens.len())?;
    let moment = now();
    for token in &tokens {
        let until = token.expires().map_or_else(String::new, |expires| until(expires, moment));
        writeln!(out, "         {} ({}){until}", token.name(), token.role().word())?;
    }
    if tokens.is_empty() {
        writeln!(out, "         none: every caller without a signed token is an admin")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells what the end of a token means at the moment `now`, both in seconds since the epoch.
fn until(expires: u64, now: u64) -> String {
    let moment = i64::try_from(expires).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let moment = moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_default();
    match expires.checked_sub(now) {
        None | Some(0) => format!(" EXPIRED at {moment}: it is refused"),
        Some(left) if left < SOON_SECONDS => {
            format!(" expires soon, at {moment}: in {} hours", left.div_ceil(3600))
        }
        Some(_) => format!(" until {moment}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_token_is_called_so_and_one_that_expires_soon_too() {
        let expires = 1_800_000_000;
        for (now, told) in [
            (expires, " EXPIRED at 2027-01-15T08:00:00Z: it is refused"),
            (expires + 1, " EXPIRED at 2027-01-15T08:00:00Z: it is refused"),
            (expires - 1, " expires soon, at 2027-01-15T08:00:00Z: in 1 hours"),
            (expires - SOON_SECONDS, " until 2027-01-15T08:00:00Z"),
        ] {
            assert_eq!(until(expires, now), told);
        }
    }
}
