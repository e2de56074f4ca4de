//! `GET /v1/skills/{u}/{a}/{s}/download`

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::skill_of;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::request::{NoParams, SkillsRequest};
use crate::http::stream;

pub(in crate::http) async fn download(State(app): State<App>, request: SkillsRequest, _: NoParams) -> Answer {
    request.check_read()?;
    let (id, skill) = skill_of(&request)?;
    let (spool, bytes) = app.service.pack(id).await?;
    let (file, flight) = spool.into_parts();
    let mut response: Response = stream::counted_body(file, bytes, flight).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    if let Ok(disposition) = HeaderValue::try_from(disposition(skill.as_str())) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Names the download in ASCII for old clients and in UTF-8 for all others (RFC 6266, RFC 8187).
fn disposition(skill: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_. ".contains(c) { c } else { '_' };
    let ascii: String = skill.chars().map(plain).collect();
    let mut encoded = String::new();
    for byte in skill.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("attachment; filename=\"{ascii}.zip\"; filename*=UTF-8''{encoded}.zip")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chinese_name_survives_and_a_quote_cannot_end_the_header() {
        assert_eq!(
            disposition("数据\"; x"),
            "attachment; filename=\"____ x.zip\"; filename*=UTF-8''%E6%95%B0%E6%8D%AE%22%3B%20x.zip"
        );
    }
}
