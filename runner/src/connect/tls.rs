//! [`Trust`]: whose certificates are believed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tracing::warn;

/// The authorities of this machine, and those of a file.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// `None` when nothing is encrypted.
    pub(super) config: Option<Arc<ClientConfig>>,
}

/// Why authorities cannot be used.
#[derive(Debug, Error)]
pub(crate) enum TrustError {
    /// The file cannot be read, or is no PEM.
    #[error("`{0}` cannot be read as certificates (PEM)")]
    File(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// A certificate of the file is none.
    #[error("`{0}` has a certificate that is none, or has none at all")]
    Certificate(PathBuf),
    /// This machine has no authorities, and no file names any.
    #[error(
        "this machine has no certificate authorities: install `ca-certificates`, or name a file with `--ca-file`"
    )]
    None,
    /// TLS itself cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

impl Trust {
    pub(super) fn none() -> Self {
        Self { config: None }
    }

    pub(super) fn new(file: Option<&Path>) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        let ours = rustls_native_certs::load_native_certs();
        for error in &ours.errors {
            warn!(%error, "some certificate authorities of this machine cannot be read");
        }
        roots.add_parsable_certificates(ours.certs);
        if let Some(path) = file {
            let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
            let certificates = read().map_err(|error| TrustError::File(path.to_owned(), error))?;
            if certificates.is_empty() {
                return Err(TrustError::Certificate(path.to_owned()));
            }
            for certificate in certificates {
                roots.add(certificate).map_err(|_| TrustError::Certificate(path.to_owned()))?;
            }
        }
        if roots.is_empty() {
            return Err(TrustError::None);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TrustError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Some(Arc::new(config)) })
    }
}
