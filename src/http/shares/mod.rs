//! Share links: making them, and what installers read by them.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`manage`] | making, listing and revoking links |
//! | [`read`] | what a path below a link is |
//! | [`by_link`] | a request by a link that counts, and how it is answered |
//! | [`discovery`] | the index of *agent skills discovery*, and its archives |
//! | [`marketplace`] | a plugin marketplace, and the packages that it names |

mod by_link;
mod discovery;
pub(in crate::http) mod manage;
mod marketplace;
pub(in crate::http) mod read;

use axum::http::{HeaderMap, header};

use super::App;

/// What a link begins with: the configured URL, or nothing.
fn own_url(app: &App) -> &str {
    app.shares.as_deref().unwrap_or_default().trim_end_matches('/')
}

/// The same where it must be whole: without a configured URL by the name that the caller asked for.
fn whole_url(app: &App, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    match own_url(app) {
        "" => format!("http://{host}"),
        url => url.to_owned(),
    }
}
