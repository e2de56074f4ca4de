//! Bodies that are JSON.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use super::innermost;
use crate::http::answer::problem::Problem;
use crate::http::extract::body;
use crate::http::extract::object::Object;
use crate::http::{App, request_log};
use crate::ops::admission::{Job, Weight};

/// Largest JSON body of most routes, in bytes.
const JSON_BYTES_MAX: usize = 64 * 1024;
/// Size from which JSON is read in a thread of its own, which gives way, in bytes: the runtime's threads belong to all requests.
const LARGE_JSON_BYTES: usize = 256 * 1024;

/// A JSON body of a route, and its largest size.
pub(in crate::http) trait JsonLimit {
    /// Largest body, in bytes.
    fn bytes_max(_app: &App) -> usize {
        JSON_BYTES_MAX
    }
}

/// A JSON body that is an object, as large as its route takes one, under any `Content-Type`.
pub(in crate::http) struct JsonBody<T>(pub(in crate::http) T);

impl<T: DeserializeOwned + JsonLimit + Send + 'static> FromRequest<App> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bytes = body::collect(app, request.into_body(), T::bytes_max(app)).await?;
        let length = bytes.len();
        let read = move || parse_json(&bytes).map(|Object(value)| Self(value));
        if length < LARGE_JSON_BYTES {
            return read();
        }
        let job = Job::about(request_log::user_of().as_ref(), Weight::Light).giving_way_if(true);
        app.service.admission().work(job, move || Ok(read())).await?
    }
}

/// Reads JSON from the bytes of a body.
pub(in crate::http) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let parsed = axum::Json::<T>::from_bytes(bytes);
    match parsed {
        Ok(axum::Json(value)) => Ok(value),
        Err(JsonRejection::JsonDataError(rejection)) => {
            Err(Problem::invalid(format!("the body is wrong: {}", innermost(&rejection))))
        }
        Err(JsonRejection::JsonSyntaxError(rejection)) => {
            Err(Problem::invalid(format!("the body is no JSON: {}", innermost(&rejection))))
        }
        Err(other) => Err(Problem::invalid(other.to_string())),
    }
}
