//! Query parameters.

use std::str::FromStr;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::innermost;
use crate::http::App;
use crate::http::answer::problem::Problem;

/// Query parameters; an unknown one is refused, so that a misspelt `end` does not replace a whole file.
pub(in crate::http) struct Params<T>(pub(in crate::http) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !is_utf8(parts.uri.query().unwrap_or_default()) {
            return Err(Problem::invalid("the query is not percent-encoded UTF-8"));
        }
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(QueryRejection::FailedToDeserializeQueryString(rejection)) => {
                Err(Problem::invalid(format!("the query is wrong: {}", innermost(&rejection))))
            }
            Err(other) => Err(Problem::invalid(other.to_string())),
        }
    }
}

/// The parameters of a list in pages that has no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct PageQuery {
    pub(in crate::http) limit: Option<usize>,
    pub(in crate::http) cursor: Option<String>,
}

/// A request without query parameters: none is known, and any is refused.
pub(in crate::http) struct NoParams;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl FromRequestParts<App> for NoParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Params::<Nothing>::from_request_parts(parts, app).await.map(|_| Self)
    }
}

/// Tells whether a query decodes to UTF-8. Its reader would put U+FFFD for what does not, and so name another file.
fn is_utf8(query: &str) -> bool {
    percent_decode_str(query).decode_utf8().is_ok()
}

/// Reads a parameter that is a word with a meaning of its own.
pub(in crate::http) fn word<T>(text: Option<&str>) -> Result<T, Problem>
where
    T: FromStr + Default,
    T::Err: std::fmt::Display,
{
    text.map_or_else(
        || Ok(T::default()),
        |text| text.parse().map_err(|error: T::Err| Problem::invalid(error.to_string())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_decodes_to_no_utf8_is_noticed() {
        for good in ["", "path=a", "path=%E6%95%B0", "a=%", "a=%4", "a=%zz", "a=100%25&b=+"] {
            assert!(is_utf8(good), "{good}");
        }
        for bad in ["path=%ff", "path=%E6%95", "%c0%af=1"] {
            assert!(!is_utf8(bad), "{bad}");
        }
    }
}
