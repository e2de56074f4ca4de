//! A client of a running service, for the command line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Largest JSON answer read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why a call failed.
#[derive(Debug, Error)]
pub(super) enum ClientError {
    /// The service cannot be reached, or broke off.
    #[error("the service at {server} cannot be reached: is it running? (`filesecbox serve`)")]
    Unreachable {
        /// As given.
        server: String,
        /// The cause.
        #[source]
        source: Box<ureq::Error>,
    },
    /// The service has no certificate that is trusted.
    #[error(
        "the certificate of {server} is not trusted: name the file of its authority with `--ca-file`, or correct the address"
    )]
    Untrusted {
        /// As given.
        server: String,
        /// The cause.
        #[source]
        source: Box<ureq::Error>,
    },
    /// A file of certificates without any.
    #[error("{path} holds no certificate in PEM: name the certificate of the authority")]
    NoCertificate {
        /// As given.
        path: String,
    },
    /// The service said no.
    #[error("{message} ({code})")]
    Refused {
        /// Its sentence.
        message: String,
        /// Its code.
        code: String,
    },
    /// The answer is not one of ours.
    #[error("the answer of {server} cannot be understood: is it a filesecbox?")]
    Foreign {
        /// As given.
        server: String,
    },
    /// More than the service takes in one upload.
    #[error(
        "{path} has {bytes} bytes, the service takes at most {limit} in one upload: send less of it at once"
    )]
    TooLarge {
        /// As given.
        path: String,
        /// Its size.
        bytes: u64,
        /// The service's limit, in bytes.
        limit: u64,
    },
    /// A local file.
    #[error("{path}")]
    File {
        /// As given.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// A service and how to speak to it.
pub(super) struct Client {
    pub(super) server: String,
    token: Option<String>,
    agent: ureq::Agent,
}

#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}

/// What `/v1/info` says of uploads.
#[derive(Deserialize)]
struct Info {
    limits: Limits,
}

#[derive(Deserialize)]
struct Limits {
    archive: ArchiveLimits,
}

#[derive(Deserialize)]
struct ArchiveLimits {
    upload_bytes: u64,
}

#[derive(Deserialize)]
struct Failure {
    data: String,
    code: String,
}

impl Client {
    /// A client of `server`, which trusts the certificates of `ca_file`, or those that this host trusts.
    ///
    /// # Errors
    /// [`ClientError::File`], [`ClientError::NoCertificate`].
    pub(super) fn new(
        server: &str,
        token: Option<String>,
        ca_file: Option<&Path>,
    ) -> Result<Self, ClientError> {
        Self::with(server, token, ca_file, None)
    }

    /// A client that gives up on a call which takes longer than `patience`.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub(super) fn within(server: &str, patience: Duration) -> Result<Self, ClientError> {
        Self::with(server, None, None, Some(patience))
    }

    fn with(
        server: &str,
        token: Option<String>,
        ca_file: Option<&Path>,
        patience: Option<Duration>,
    ) -> Result<Self, ClientError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(roots(server, ca_file)?)
            .build();
        let config = ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls);
        let agent = config.timeout_global(patience).build().into();
        Ok(Self { server: server.trim_end_matches('/').to_owned(), token, agent })
    }

    /// The address of a route; segments are encoded.
    pub(super) fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> String {
        let mut url = self.server.clone();
        for segment in segments {
            url.push('/');
            encode(segment, &mut url);
        }
        for (index, (name, value)) in query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            encode(value, &mut url);
        }
        url
    }

    pub(super) fn get(&self, url: &str) -> Result<ureq::http::Response<ureq::Body>, ClientError> {
        let request = self.agent.get(url);
        self.checked(self.authorized(request).call())
    }

    pub(super) fn delete(&self, url: &str) -> Result<ureq::http::Response<ureq::Body>, ClientError> {
        let request = self.agent.delete(url);
        self.checked(self.authorized(request).call())
    }

    /// Sends `bytes` bytes of `body`; all of it, in pieces, where that is not known.
    pub(super) fn post(
        &self,
        url: &str,
        content_type: &str,
        bytes: Option<u64>,
        mut body: impl Read,
    ) -> Result<ureq::http::Response<ureq::Body>, ClientError> {
        let request = self.agent.post(url).header("content-type", content_type);
        let request = self.authorized(request);
        let request = match bytes {
            Some(bytes) => request.header("content-length", bytes.to_string()),
            None => request,
        };
        self.checked(request.send(ureq::SendBody::from_reader(&mut body)))
    }

    /// Sends the `bytes` bytes of a file.
    pub(super) fn put(
        &self,
        url: &str,
        bytes: u64,
        mut file: impl Read,
    ) -> Result<ureq::http::Response<ureq::Body>, ClientError> {
        let request = self.authorized(self.agent.put(url)).header("content-type", "application/octet-stream");
        let request = request.header("content-length", bytes.to_string());
        self.checked(request.send(ureq::SendBody::from_reader(&mut file)))
    }

    /// Refuses an upload that the service would break off in the middle, where its reason would be lost.
    pub(super) fn check_upload(&self, path: &Path, bytes: u64) -> Result<(), ClientError> {
        let info: Info = self.data(self.get(&self.url(&["v1", "info"], &[]))?)?;
        let limit = info.limits.archive.upload_bytes;
        if bytes > limit {
            return Err(ClientError::TooLarge { path: path.display().to_string(), bytes, limit });
        }
        Ok(())
    }

    /// Replaces a text, if it has this tag still.
    pub(super) fn put_text(
        &self,
        url: &str,
        text: &str,
        tag: Option<&str>,
    ) -> Result<ureq::http::Response<ureq::Body>, ClientError> {
        let mut request = self.authorized(self.agent.put(url)).header("content-type", "text/plain");
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        self.checked(request.send(text.as_bytes()))
    }

    /// Reads the `data` of an answer.
    pub(super) fn data<T: for<'a> Deserialize<'a>>(
        &self,
        response: ureq::http::Response<ureq::Body>,
    ) -> Result<T, ClientError> {
        self.whole::<Envelope<T>>(response).map(|envelope| envelope.data)
    }

    /// Reads an answer with what stands beside `data`.
    pub(super) fn whole<T: for<'a> Deserialize<'a>>(
        &self,
        response: ureq::http::Response<ureq::Body>,
    ) -> Result<T, ClientError> {
        let text = self.text(response)?;
        serde_json::from_slice(&text).map_err(|_| ClientError::Foreign { server: self.server.clone() })
    }

    /// The lines of an answer, each a JSON document, as they come.
    pub(super) fn lines<T: for<'a> Deserialize<'a>>(
        &self,
        response: ureq::http::Response<ureq::Body>,
    ) -> impl Iterator<Item = Result<T, ClientError>> {
        let lines = BufReader::new(response.into_body().into_reader().take(ANSWER_BYTES_MAX)).lines();
        lines.map(|line| {
            let line = line.map_err(|_| self.broke_off())?;
            serde_json::from_str(&line).map_err(|_| ClientError::Foreign { server: self.server.clone() })
        })
    }

    /// An answer that ends too early.
    pub(super) fn broke_off(&self) -> ClientError {
        let source = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        ClientError::Unreachable { server: self.server.clone(), source: Box::new(source.into()) }
    }

    fn text(&self, response: ureq::http::Response<ureq::Body>) -> Result<Vec<u8>, ClientError> {
        let mut text = Vec::new();
        let read = response.into_body().into_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|_| ClientError::Foreign { server: self.server.clone() })?;
        Ok(text)
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn checked(
        &self,
        sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<ureq::http::Response<ureq::Body>, ClientError> {
        let response = sent.map_err(|source| {
            let (server, is_untrusted) = (self.server.clone(), is_untrusted(&source));
            let source = Box::new(source);
            if is_untrusted {
                ClientError::Untrusted { server, source }
            } else {
                ClientError::Unreachable { server, source }
            }
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let text = self.text(response)?;
        Err(match serde_json::from_slice::<Failure>(&text) {
            Ok(Failure { data, code }) => ClientError::Refused { message: data, code },
            Err(_) => ClientError::Foreign { server: self.server.clone() },
        })
    }
}

/// Tells whether a connection failed for the certificate of the other side.
fn is_untrusted(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Rustls(rustls::Error::InvalidCertificate(_)) => true,
        ureq::Error::Io(error) => error
            .get_ref()
            .and_then(|cause| cause.downcast_ref::<rustls::Error>())
            .is_some_and(|cause| matches!(cause, rustls::Error::InvalidCertificate(_))),
        _ => false,
    }
}

/// What a client of `https://` trusts.
#[expect(clippy::disallowed_methods, reason = "a file that the caller names; nothing stored")]
fn roots(server: &str, ca_file: Option<&Path>) -> Result<RootCerts, ClientError> {
    let Some(path) = ca_file else {
        // Those of the host are some hundreds, which plain HTTP does not need.
        let is_tls = server.starts_with("https:");
        let found = is_tls.then(rustls_native_certs::load_native_certs).map(|found| found.certs);
        let found = found.unwrap_or_default().into_iter();
        return Ok(found.map(|certificate| Certificate::from_der(&certificate).to_owned()).into());
    };
    let shown = path.display().to_string();
    let file = |source| ClientError::File { path: shown.clone(), source };
    let text = std::fs::read(path).map_err(file)?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(ClientError::NoCertificate { path: shown.clone() });
    }
    Ok(certificates.into())
}

/// Percent-encodes everything but unreserved characters (RFC 3986, section 2.3).
pub(super) fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_values_are_encoded() {
        let client = Client::new("http://127.0.0.1:1/", None, None).unwrap();
        assert_eq!(
            client.url(&["v1", "数", "a/b"], &[("scope", "x&y")]),
            "http://127.0.0.1:1/v1/%E6%95%B0/a%2Fb?scope=x%26y"
        );
    }
}
