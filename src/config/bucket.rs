//! Settings of the bucket that packages are kept in, and its credentials.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;
use serde::Deserialize;

use super::ConfigError;

/// Longest name of a bucket, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest prefix, in bytes: a key of S3 has 1024, of which a package takes 93.
const PREFIX_BYTES_MAX: usize = 512;
/// Largest secret, in bytes. Session tokens have some thousand.
const SECRET_BYTES_MAX: u64 = 16 * 1024;
/// Most times that a request is made again.
const RETRIES_MAX: usize = 20;
/// The longest time without a byte, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// A bucket of an S3-compatible store.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BucketConfig {
    /// `s3://BUCKET` or `s3://BUCKET/PREFIX`; empty for packages on this host alone.
    pub url: String,
    /// The store, `https://HOST[:PORT]`; empty for that of AWS in the region.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// Whether the bucket stands in the path of a URL, and not in the name of the host.
    pub path_style: bool,
    /// Whether the endpoint may be plain HTTP.
    pub allow_http: bool,
    /// The file with the id of the access key; empty for `AWS_ACCESS_KEY_ID`.
    pub access_key_id_file: PathBuf,
    /// The file with the secret of the access key; empty for `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key_file: PathBuf,
    /// The file with the session token; empty for `AWS_SESSION_TOKEN`, or for none where that is unset.
    pub session_token_file: PathBuf,
    /// How long the store may take for the head of an answer, and for each next piece of a body, in milliseconds.
    pub timeout_ms: u64,
    /// How often one request is made again after a failure that may pass.
    pub retries: usize,
}

/// What requests to a bucket are signed with.
#[derive(Clone)]
pub struct BucketCredentials {
    /// The id of the access key.
    pub key_id: String,
    /// Its secret.
    pub secret: String,
    /// A token that goes with temporary keys.
    pub token: Option<String>,
}

impl fmt::Debug for BucketCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BucketCredentials").finish_non_exhaustive()
    }
}

impl Default for BucketConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            path_style: true,
            allow_http: false,
            access_key_id_file: PathBuf::new(),
            secret_access_key_file: PathBuf::new(),
            session_token_file: PathBuf::new(),
            timeout_ms: 10_000,
            retries: 5,
        }
    }
}

impl BucketConfig {
    /// Whether there is a bucket.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !self.url.is_empty()
    }

    /// The name of the bucket and the prefix of keys, without slashes around it.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: `url` is none.
    pub fn place(&self) -> Result<(&str, &str), ConfigError> {
        let wrong = || {
            let value = if self.url.contains('@') {
                "an address with a user in it".to_owned()
            } else {
                format!("`{}`", self.url.escape_debug())
            };
            let advice =
                "write `s3://BUCKET/PREFIX`, the prefix of letters, digits and `-_./`, or \"\" for none";
            ConfigError::Value { setting: "prepare.bucket.url", value, advice }
        };
        let rest = self.url.strip_prefix("s3://").ok_or_else(wrong)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(is_plain)
            && name.starts_with(|first: char| first.is_ascii_alphanumeric());
        let is_segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain);
        let is_prefix =
            prefix.is_empty() || prefix.len() <= PREFIX_BYTES_MAX && prefix.split('/').all(is_segment);
        if is_name && is_prefix { Ok((name, prefix)) } else { Err(wrong()) }
    }

    /// The longest time without a byte.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Checks what makes no sense however it is spelled.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !self.is_set() {
            return Ok(());
        }
        self.place()?;
        self.check_endpoint()?;
        let wrong = |setting, value: String, advice| Err(ConfigError::Value { setting, value, advice });
        let is_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if self.region.is_empty() || self.region.len() > 64 || !self.region.bytes().all(is_region) {
            let advice = "write the region as the store calls it, such as `eu-central-1`; many others take `us-east-1`";
            return wrong("prepare.bucket.region", format!("`{}`", self.region.escape_debug()), advice);
        }
        if !(1..=TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            return wrong(
                "prepare.bucket.timeout_ms",
                self.timeout_ms.to_string(),
                "set 1 to 600000 milliseconds",
            );
        }
        if self.retries > RETRIES_MAX {
            return wrong("prepare.bucket.retries", self.retries.to_string(), "set 20 at most");
        }
        Ok(())
    }

    fn check_endpoint(&self) -> Result<(), ConfigError> {
        if self.endpoint.is_empty() {
            return Ok(());
        }
        let wrong = |advice| {
            // A log must not have a password, not even in a setting that is refused.
            let value = if self.endpoint.contains('@') {
                "an address with a user in it".to_owned()
            } else {
                format!("`{}`", self.endpoint.escape_debug())
            };
            Err(ConfigError::Value { setting: "prepare.bucket.endpoint", value, advice })
        };
        let plain = "set `https://HOST:PORT` and nothing after it, or \"\" for AWS; keys belong into files or the environment";
        let Ok(uri) = Uri::from_str(&self.endpoint) else { return wrong(plain) };
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        let is_bare = !self.endpoint.contains(['@', '?', '#']) && matches!(uri.path(), "" | "/");
        match uri.scheme_str() {
            Some("https") if has_host && is_bare => Ok(()),
            Some("http") if has_host && is_bare && self.allow_http => Ok(()),
            Some("http") if has_host && is_bare => wrong(
                "set `https://HOST:PORT`, or `prepare.bucket.allow_http = true` where the network is your own",
            ),
            _ => wrong(plain),
        }
    }

    /// Reads the credentials: each from its file, else from the variable of the environment that `variable` gives.
    ///
    /// # Errors
    /// [`ConfigError::Secret`]; [`ConfigError::Value`] where one is missing.
    pub fn credentials(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<BucketCredentials, ConfigError> {
        let given = |path: &Path, name: &str| match path.as_os_str().is_empty() {
            true => Ok(variable(name).filter(|value| !value.is_empty())),
            false => secret(path).map(Some),
        };
        let missing = |setting, advice| ConfigError::Value { setting, value: "empty".to_owned(), advice };
        let key_id = given(&self.access_key_id_file, "AWS_ACCESS_KEY_ID")?.ok_or_else(|| {
            missing("prepare.bucket.access_key_id_file", "name a file, or set AWS_ACCESS_KEY_ID")
        })?;
        let secret = given(&self.secret_access_key_file, "AWS_SECRET_ACCESS_KEY")?.ok_or_else(|| {
            missing("prepare.bucket.secret_access_key_file", "name a file, or set AWS_SECRET_ACCESS_KEY")
        })?;
        let token = given(&self.session_token_file, "AWS_SESSION_TOKEN")?;
        Ok(BucketCredentials { key_id, secret, token })
    }
}

/// Reads a secret of one line, from a file that not every user of the host can read.
fn secret(path: &Path) -> Result<String, ConfigError> {
    use std::io::Read;
    let wrong = |problem: String| ConfigError::Secret { path: path.display().to_string(), problem };
    #[expect(clippy::disallowed_methods, reason = "the operator names the file; it is not stored data")]
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let stat = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if !stat.is_file() {
        return Err(wrong("it is no regular file".to_owned()));
    }
    if stat.permissions().mode() & 0o007 != 0 {
        return Err(wrong("every user of the host may use it: `chmod 600` it".to_owned()));
    }
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    // An editor ends the last line.
    let text = text.trim();
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(wrong("it has other than one line of visible ASCII characters".to_owned())),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of the test's own")]
mod tests {
    use super::*;

    fn at(url: &str) -> BucketConfig {
        BucketConfig { url: url.to_owned(), ..BucketConfig::default() }
    }

    #[test]
    fn a_bucket_is_a_name_and_a_prefix_and_nothing_else() {
        for (url, place) in [
            ("s3://skills", ("skills", "")),
            ("s3://skills/", ("skills", "")),
            ("s3://my.skills-1/packages/v1/", ("my.skills-1", "packages/v1")),
        ] {
            at(url).check().unwrap();
            assert_eq!(at(url).place().unwrap(), place);
        }
        BucketConfig { timeout_ms: 0, ..at("") }.check().unwrap();
        for url in [
            "skills",
            "s3:/skills",
            "s3://",
            "s3:///a",
            "https://skills",
            "s3://a/../b",
            "s3://a//b",
            "s3://a/b c",
            "s3://key:secret@skills",
            "s3://a?b",
            "s3://-a",
            "s3://a/%2e",
        ] {
            let error = at(url).check().expect_err(url).to_string();
            assert!(error.contains("prepare.bucket.url") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_endpoint_is_tls_unless_said_otherwise_and_never_has_a_password() {
        let with = |endpoint: &str, allow_http| BucketConfig {
            endpoint: endpoint.to_owned(),
            allow_http,
            ..at("s3://skills")
        };
        with("https://s3.example:9000/", false).check().unwrap();
        with("http://127.0.0.1:9000", true).check().unwrap();
        for (endpoint, allow_http) in [
            ("http://127.0.0.1:9000", false),
            ("https://key:secret@s3.example", true),
            ("https://s3.example/bucket", true),
            ("ftp://s3.example", true),
            ("s3.example", true),
            ("https://", true),
        ] {
            let error = with(endpoint, allow_http).check().expect_err(endpoint).to_string();
            assert!(error.contains("prepare.bucket.endpoint") && !error.contains("secret"), "{error}");
        }
        for wrong in [
            BucketConfig { timeout_ms: 0, ..at("s3://a") },
            BucketConfig { timeout_ms: 600_001, ..at("s3://a") },
            BucketConfig { retries: 21, ..at("s3://a") },
            BucketConfig { region: "eu central".to_owned(), ..at("s3://a") },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn credentials_come_from_files_that_others_cannot_read_or_from_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let none = |_: &str| None;
        let variables = |name: &str| Some(format!("of-{name}"));
        let read = at("s3://a").credentials(variables).unwrap();
        assert_eq!(
            (read.key_id.as_str(), read.secret.as_str()),
            ("of-AWS_ACCESS_KEY_ID", "of-AWS_SECRET_ACCESS_KEY")
        );
        assert_eq!(read.token.as_deref(), Some("of-AWS_SESSION_TOKEN"));
        assert!(!format!("{read:?}").contains("AWS"));
        assert!(at("s3://a").credentials(none).is_err());
        let config = |secret: PathBuf| BucketConfig {
            access_key_id_file: file("id", "AKIA\n", 0o640),
            secret_access_key_file: secret,
            ..at("s3://a")
        };
        let read = config(file("key", " s3cret \n", 0o600)).credentials(none).unwrap();
        assert_eq!((read.key_id.as_str(), read.secret.as_str(), read.token), ("AKIA", "s3cret", None));
        for (number, (text, mode)) in
            [("s3cret", 0o604), ("s3cret", 0o602), ("s3cret\nmore", 0o600), ("", 0o600)]
                .into_iter()
                .enumerate()
        {
            let path = file(&format!("key-{number}"), text, mode);
            let error = config(path).credentials(variables).unwrap_err().to_string();
            assert!(error.contains(&format!("key-{number}")) && !error.contains("s3cret"), "{error}");
        }
        assert!(config(dir.path().to_owned()).credentials(variables).is_err());
        assert!(config(dir.path().join("none")).credentials(variables).is_err());
    }
}
