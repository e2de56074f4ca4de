//! Running a command as a plain child process: no isolation, no limits.

use std::collections::HashMap;
use std::io;

use axum::Json;
use axum::extract::{Query, RawPathParams, State};
use axum::response::Response;

use super::{Bare, Broken, files, success};
use crate::spawn;

/// Output that is answered, in bytes: as much as the service under test keeps of a stream by default. All of it is read.
const OUTPUT_BYTES: usize = 1024 * 1024;

pub(super) async fn execute(
    State(bare): State<Bare>,
    params: RawPathParams,
    Query(query): Query<HashMap<String, String>>,
    Json(arguments): Json<Vec<String>>,
) -> Result<Response, Broken> {
    let program = query.get("command").ok_or_else(|| io::Error::other("no `command`"))?;
    let output = tokio::process::Command::new(spawn::find(program))
        .args(arguments)
        .current_dir(files::tree(&bare, &params))
        .env_clear()
        // As the service under test sets them.
        .env("PATH", spawn::SEARCH_PATH)
        .envs(spawn::LOCALE)
        .output()
        .await?;
    let code = output.status.code().unwrap_or(-1);
    let kept =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..OUTPUT_BYTES).unwrap_or(bytes)).into_owned();
    let text = kept(&output.stdout) + &kept(&output.stderr);
    Ok(success(format!("Exit Code: {code}\nOutput:\n{text}")))
}
