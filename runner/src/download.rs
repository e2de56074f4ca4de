//! [`Downloads`]: URLs that services of the second founding generation have fetched into files.
//!
//! A confined command could fetch the same: the network is open to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::http::Uri;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use sandbox::wire::response::Failed;
use sandbox::{ByteStream, Error, ErrorKind, Sandbox, SandboxPath, UserId, WriteOptions};

use crate::connect::{Address, Proxies, Way};

/// The largest file that is fetched, in bytes.
const BYTES_MAX: u64 = 100 << 20;
/// The longest that it may take.
const LONGEST: Duration = Duration::from_secs(300);
/// How many redirects are followed.
const REDIRECTS_MAX: usize = 10;
/// The permission bits of directories that are made above the file.
const DIRECTORY: u32 = 0o755;

/// Fetches URLs: by the proxies and the authorities of the way to the service, where there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downloads(Option<Arc<Way>>);

/// Where a file goes.
pub(crate) struct Destination<'a> {
    pub(crate) sandbox: &'a Arc<dyn Sandbox>,
    pub(crate) user: &'a UserId,
    pub(crate) path: &'a SandboxPath,
}

/// A server's answer, and what carries its body.
struct Fetched {
    answer: Response<Incoming>,
    _carrying: Carrying,
}

/// A connection, closed when this is dropped.
struct Carrying(tokio::task::JoinHandle<()>);

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Downloads {
    pub(crate) fn new(way: Option<Arc<Way>>) -> Self {
        Self(way)
    }

    /// Fetches `url` into a file, whose directories are made. Tells how large it is.
    pub(crate) async fn fetch(&self, url: &str, to: Destination<'_>) -> Result<u64, Failed> {
        let late =
            || Failed::new(ErrorKind::Timeout, format!("download took more than {} s", LONGEST.as_secs()));
        tokio::time::timeout(LONGEST, self.fetch_in_time(url, to)).await.map_err(|_| late())?
    }

    async fn fetch_in_time(&self, url: &str, to: Destination<'_>) -> Result<u64, Failed> {
        let mut uri: Uri = url.parse().map_err(|_| invalid("download: the URL is none"))?;
        for _ in 0..=REDIRECTS_MAX {
            let fetched = self.ask(&uri).await?;
            let status = fetched.answer.status();
            if status.is_redirection()
                && let Some(location) = fetched.answer.headers().get(header::LOCATION)
            {
                uri = next(&uri, location.to_str().unwrap_or_default())?;
                continue;
            }
            if status != StatusCode::OK {
                return Err(failed(&format!("HTTP {}", status.as_u16())));
            }
            return keep(fetched, to).await;
        }
        Err(failed("too many redirects"))
    }

    /// Asks the server of `uri`.
    async fn ask(&self, uri: &Uri) -> Result<Fetched, Failed> {
        let scheme = match uri.scheme_str() {
            Some("http") => "ws",
            Some("https") => "wss",
            _ => return Err(invalid("download: the URL must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("download: the URL has no host"))?;
        let address: Address = format!("{scheme}://{authority}/")
            .parse()
            .map_err(|_| invalid("download: the URL has no usable host"))?;
        let host = address.authority();
        let way = match &self.0 {
            Some(way) => way.beside(address),
            None => Way::new(address, Proxies::from(|name| std::env::var(name).ok()), None, ""),
        };
        let way = way.map_err(|error| failed(&error.to_string()))?;
        let stream = way.connect_for_file().await.map_err(|error| failed(&error.to_string()))?;
        let (mut requests, connection) = handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error.to_string()))?;
        let carrying = Carrying(tokio::spawn(async move { drop(connection.await) }));
        let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::HOST, host)
            .header(header::USER_AGENT, concat!("filesecbox-runner/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Empty::new())
            .map_err(|_| invalid("download: the URL is none"))?;
        let answer = requests.send_request(request).await.map_err(|error| failed(&error.to_string()))?;
        Ok(Fetched { answer, _carrying: carrying })
    }
}

/// Where a redirect leads. From an encrypted connection to none is refused.
fn next(from: &Uri, location: &str) -> Result<Uri, Failed> {
    let bad = || failed("a redirect leads to no URL");
    let to: Uri = location.parse().map_err(|_| bad())?;
    let to = match (to.scheme_str(), from.authority()) {
        (Some(_), _) => to,
        (None, Some(authority)) if location.starts_with('/') && !location.starts_with("//") => {
            let scheme = from.scheme_str().unwrap_or("http");
            format!("{scheme}://{authority}{location}").parse().map_err(|_| bad())?
        }
        _ => return Err(bad()),
    };
    if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
        return Err(failed("a redirect leads from https:// to http://"));
    }
    Ok(to)
}

/// Writes the body of an answer into the file.
async fn keep(fetched: Fetched, to: Destination<'_>) -> Result<u64, Failed> {
    let Destination { sandbox, user, path } = to;
    let told = fetched.answer.headers().get(header::CONTENT_LENGTH);
    let told = told.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|bytes| bytes > BYTES_MAX) {
        return Err(Failed::of(&too_large()));
    }
    if let Some((above, _)) = path.as_str().rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
        let above = SandboxPath::parse(above).map_err(|error| invalid(&error.to_string()))?;
        sandbox.mkdir_all(user, &above, DIRECTORY).await.map_err(|error| Failed::of(&error))?;
    }
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (counted, Fetched { answer, _carrying }) = (Arc::clone(&count), fetched);
    let body: ByteStream = stream::try_unfold(answer.into_body(), move |mut body| {
        let count = Arc::clone(&counted);
        async move {
            loop {
                let Some(frame) = body.frame().await else { return Ok(None) };
                let broken = |error| {
                    Error::new(ErrorKind::Disconnected, "download", "the body broke off").because(error)
                };
                let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
                let bytes_so_far = count.fetch_add(bytes.len() as u64, std::sync::atomic::Ordering::Relaxed)
                    + bytes.len() as u64;
                if bytes_so_far > BYTES_MAX {
                    return Err(too_large());
                }
                return Ok(Some((bytes, body)));
            }
        }
    })
    .boxed();
    let written = sandbox.write_file(user, path, body, WriteOptions::default()).await;
    written.map_err(|error| Failed::of(&error))?;
    Ok(count.load(std::sync::atomic::Ordering::Relaxed))
}

fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "download", format!("a download has at most {BYTES_MAX} bytes"))
}

fn invalid(message: &str) -> Failed {
    Failed::new(ErrorKind::Invalid, message)
}

fn failed(why: &str) -> Failed {
    Failed::new(ErrorKind::Internal, format!("download request: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_a_url_and_never_to_less_protection() {
        let from = |text: &str| text.parse::<Uri>().unwrap();
        let led = |at: &str, to: &str| next(&from(at), to).map(|uri| uri.to_string());
        assert_eq!(led("http://h/a", "/b?c").as_deref(), Ok("http://h/b?c"));
        assert_eq!(led("http://h/a", "https://g/b").as_deref(), Ok("https://g/b"));
        for (at, to) in
            [("https://h/a", "http://h/a"), ("http://h/a", "//g/b"), ("http://h/a", "b"), ("http://h/a", "")]
        {
            assert!(led(at, to).is_err(), "{at} {to}");
        }
    }
}
