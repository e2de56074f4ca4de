//! `GET /v1/skills/{u}/{a}/{s}/download`

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::skill_of;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::disposition;
use crate::http::extract::{NoParams, SkillsRequest};
use crate::http::stream;

pub(in crate::http) async fn download(State(app): State<App>, request: SkillsRequest, _: NoParams) -> Answer {
    request.check_read()?;
    let (id, skill) = skill_of(&request)?;
    let reads = app.service.admission.reads_of(id.user());
    let (spool, bytes) = app.service.pack(id).await?;
    let (file, flight) = spool.into_parts();
    let mut response: Response = stream::counted_body(file, bytes, flight, reads).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Some(disposition) = disposition::attachment(&format!("{skill}.zip")) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}
