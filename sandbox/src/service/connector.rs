//! [`connector`]: connections to a service over HTTP, with or without TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// How often a silent connection is asked whether its other end is there still.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How often in vain, before it counts as broken.
const KEEPALIVES: u32 = 3;

/// Makes connections for a client of hyper, each within `patience`: with `is_tls` by HTTPS only, else by HTTP. Trusted are
/// `authorities` (PEM), or those that the host trusts, which are read only where TLS is spoken.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when `authorities` hold no certificate; the host's cannot be read, or are none.
pub fn connector(
    is_tls: bool,
    authorities: Option<&str>,
    patience: Duration,
) -> io::Result<HttpsConnector<HttpConnector>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(patience));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVES));
    connector.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(trusting(is_tls, authorities)?);
    let builder = if is_tls { builder.https_only() } else { builder.https_or_http() };
    Ok(builder.enable_http1().wrap_connector(connector))
}

fn trusting(is_tls: bool, authorities: Option<&str>) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let config = match authorities {
        Some(pem) => {
            let mut trusted = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                trusted.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            if trusted.is_empty() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "no certificate in PEM"));
            }
            config.with_root_certificates(trusted)
        }
        None if is_tls => config.with_native_roots()?,
        None => config.with_root_certificates(RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}
