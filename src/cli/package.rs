//! `filesecbox package put|get`, against a running service.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use super::Outcome;
use super::client::{Client, ClientError};
use super::target::{Server, say};

#[derive(Subcommand)]
pub(super) enum PackageCommand {
    /// Have the service keep an archive as the package of a version; the same bytes again are fine
    Put {
        #[command(flatten)]
        server: Server,
        /// The id of the version: 24 hexadecimal digits
        version: String,
        /// A ZIP or a tar, plain, `.gz` or `.zst`
        file: PathBuf,
        /// Refuse bytes with another digest: `sha256:` and 64 hexadecimal digits
        #[arg(long, value_name = "DIGEST")]
        digest: Option<String>,
    },
    /// Download the package of a version
    Get {
        #[command(flatten)]
        server: Server,
        /// The id of the version
        version: String,
        /// Where to; `-` is standard output [default: VERSION.package]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
}

pub(super) fn run(command: PackageCommand) -> Outcome {
    match command {
        PackageCommand::Put { server, version, file, digest } => {
            put(&server.client()?, &version, &file, digest.as_deref())?;
        }
        PackageCommand::Get { server, version, output } => {
            get(&server.client()?, &version, output.as_deref())?
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "a file that the caller names; nothing stored")]
fn put(client: &Client, version: &str, path: &Path, digest: Option<&str>) -> Result<(), ClientError> {
    let failed = |source| ClientError::File { path: path.display().to_string(), source };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    client.check_upload(path, bytes)?;
    let query: Vec<(&str, &str)> = digest.map(|digest| ("digest", digest)).into_iter().collect();
    let url = client.url(&["v1", "packages", version], &query);
    say(&client.data::<String>(client.put(&url, bytes, file)?)?);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a file that the caller names; nothing stored")]
fn get(client: &Client, version: &str, output: Option<&Path>) -> Result<(), ClientError> {
    let response = client.get(&client.url(&["v1", "packages", version], &[]))?;
    let mut reader = response.into_body().into_reader();
    let default = PathBuf::from(format!("{version}.package"));
    let path = output.unwrap_or(&default);
    let failed = |source| ClientError::File { path: path.display().to_string(), source };
    if path.as_os_str() == "-" {
        io::copy(&mut reader, &mut io::stdout().lock()).map_err(failed)?;
    } else {
        let mut file = File::create(path).map_err(failed)?;
        let bytes = io::copy(&mut reader, &mut file).map_err(failed)?;
        say(&format!("{}: {bytes} bytes", path.display()));
    }
    Ok(())
}
