//! `GET`, `HEAD` and `PUT /v1/packages/{version}`

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt;
use policy::VersionId;
use serde::{Deserialize, Serialize};
use storage::PackageFacts;

use super::answer::{Answer, success_with};
use super::extract::{NoParams, PackageRequest, Params};
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::stream;
use crate::http::extract::body;
use crate::ops::admission::Owner;

/// Digits of a digest.
const DIGITS: usize = 64;
/// The header for a digest (RFC 3230), in which it stands in base64.
const DIGEST: &str = "digest";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    digest: Option<String>,
}

#[derive(Serialize)]
struct Facts {
    version_id: VersionId,
    digest: String,
    bytes: u64,
    /// Whether it was not there before.
    created: bool,
    /// Packages that gave way to it.
    collected: usize,
}

pub(super) async fn put(
    State(app): State<App>,
    PackageRequest { version }: PackageRequest,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let expected = expected(query.digest.as_deref(), request.headers())?;
    let limit = app.service.archive_limits().upload_bytes;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.and_then(|value| value.parse().ok()).is_some_and(|bytes: u64| bytes > limit) {
        return Err(Problem::too_large("the package", limit));
    }
    let parts = request.into_body().into_data_stream().map_err(|_| body::broken());
    let put = app.service.put_package(version, parts, expected).await?;
    let PackageFacts { version, digest, bytes } = put.facts;
    let said = if put.is_new { "kept" } else { "there already" };
    let facts = Facts {
        version_id: version.clone(),
        digest: format!("sha256:{digest}"),
        bytes,
        created: put.is_new,
        collected: put.collected,
    };
    let mut response = success_with(format!("The package of the version '{version}' is {said}"), facts)?;
    if put.is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

pub(super) async fn get(
    State(app): State<App>,
    PackageRequest { version }: PackageRequest,
    _: NoParams,
) -> Answer {
    let reads = app.service.admission().reads_of_owner(Owner::Operators);
    let (file, facts) = app.service.package(version).await?;
    Ok(described(stream::body(file, 0, facts.bytes, reads), &facts))
}

pub(super) async fn head(
    State(app): State<App>,
    PackageRequest { version }: PackageRequest,
    _: NoParams,
) -> Answer {
    let facts = app.service.package_facts(version).await?;
    Ok(described(Body::empty(), &facts))
}

/// A body with the headers of a package.
fn described(body: Body, facts: &PackageFacts) -> Response {
    let mut response: Response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(facts.bytes));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(digest) = in_base64(&facts.digest).and_then(|digest| HeaderValue::try_from(digest).ok()) {
        headers.insert(DIGEST, digest);
    }
    response
}

/// The SHA-256 that the sender says the bytes have, in lower case: of the parameter, else of the header.
fn expected(query: Option<&str>, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if let Some(text) = query {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_digest = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let wrong = || Problem::invalid("`digest` is none: send `sha256:` and 64 hexadecimal digits");
        return if is_digest { Ok(Some(digits.to_ascii_lowercase())) } else { Err(wrong()) };
    }
    let Some(header) = headers.get(DIGEST) else { return Ok(None) };
    let wrong = || Problem::invalid("the header `Digest` is none: send `SHA-256=` and the digest in base64");
    // Other algorithms beside it are the sender's own business.
    let listed =
        header.to_str().map_err(|_| wrong())?.split(',').filter_map(|one| one.trim().split_once('='));
    let of_sha256 =
        listed.filter(|(name, _)| name.eq_ignore_ascii_case("sha-256")).map(|(_, value)| value).next();
    let bytes =
        of_sha256.and_then(|value| STANDARD.decode(value).ok()).filter(|bytes| bytes.len() * 2 == DIGITS);
    let bytes = bytes.ok_or_else(wrong)?;
    Ok(Some(hex::encode(bytes)))
}

/// The header for a digest.
fn in_base64(digest: &str) -> Option<String> {
    let byte = |at: usize| u8::from_str_radix(digest.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..DIGITS).step_by(2).map(byte).collect();
    Some(format!("SHA-256={}", STANDARD.encode(bytes?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_in_both_spellings_and_nothing_else() {
        let digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let told = in_base64(digits).unwrap();
        assert_eq!(told, "SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        let of_header = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(DIGEST, text.parse().unwrap());
            expected(None, &headers).ok().flatten()
        };
        assert_eq!(of_header(&told).as_deref(), Some(digits));
        assert_eq!(of_header(&format!("md5=x, sha-256={}", &told[8..])).as_deref(), Some(digits));
        assert_eq!(of_header("SHA-256=AAAA"), None);
        assert_eq!(of_header("md5=x"), None);
        let of_query = |text: &str| expected(Some(text), &HeaderMap::new()).ok().flatten();
        assert_eq!(of_query(&format!("sha256:{}", digits.to_uppercase())).as_deref(), Some(digits));
        assert_eq!(of_query("sha256:e3"), None);
        assert!(expected(None, &HeaderMap::new()).unwrap().is_none());
    }
}
