//! The status of each code.

use axum::http::StatusCode;
use sandbox::Code;

/// The status of an answer with `code`.
pub(in crate::http) fn of(code: Code) -> StatusCode {
    match code {
        Code::Invalid => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Denied => StatusCode::FORBIDDEN,
        Code::PathEscape => StatusCode::FORBIDDEN,
        Code::CommandNotAllowed => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::AlreadyExists => StatusCode::CONFLICT,
        Code::IsDirectory => StatusCode::CONFLICT,
        Code::NotADirectory => StatusCode::CONFLICT,
        Code::NotAFile => StatusCode::CONFLICT,
        Code::NotEmpty => StatusCode::CONFLICT,
        Code::NotText => StatusCode::CONFLICT,
        Code::EditMismatch => StatusCode::CONFLICT,
        Code::Unencodable => StatusCode::CONFLICT,
        Code::Conflict => StatusCode::CONFLICT,
        Code::Gone => StatusCode::GONE,
        Code::Stale => StatusCode::PRECONDITION_FAILED,
        Code::TooSlow => StatusCode::REQUEST_TIMEOUT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
        Code::BadArchive => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Busy => StatusCode::TOO_MANY_REQUESTS,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Code::Disconnected => StatusCode::SERVICE_UNAVAILABLE,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::Quota => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// The status of the code that is spelled so.
pub(in crate::http) fn of_word(word: &str) -> Option<StatusCode> {
    Code::parse(word).map(of)
}
