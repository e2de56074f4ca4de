//! Running a command as a plain child process: no isolation, no limits.

use std::collections::HashMap;
use std::io;

use axum::Json;
use axum::extract::{Query, RawPathParams, State};
use axum::response::Response;

use super::{Bare, Broken, files, success};

pub(super) async fn execute(
    State(bare): State<Bare>,
    params: RawPathParams,
    Query(query): Query<HashMap<String, String>>,
    Json(arguments): Json<Vec<String>>,
) -> Result<Response, Broken> {
    let program = query.get("command").ok_or_else(|| io::Error::other("no `command`"))?;
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(files::tree(&bare, &params))
        .env_clear()
        // Where the service under test looks for programs.
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .output()
        .await?;
    let code = output.status.code().unwrap_or(-1);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Ok(success(format!("Exit Code: {code}\nOutput:\n{text}")))
}
