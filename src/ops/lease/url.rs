//! [`of_url`]: the store of leases that `prepare.lease_url` names.

use std::sync::Arc;

use thiserror::Error;

use super::{LeaseStore, LocalLeases, PostgresLeases, RedisLeases};

/// Why an address names no store of leases. Neither the address nor a part of it is told: it may have a password.
#[derive(Debug, Error)]
pub enum UrlError {
    /// No store has this scheme.
    #[error("an address of no known store")]
    Scheme,
    /// The address of a Redis is none.
    #[error("no address of a Redis")]
    Redis,
    /// The address of a PostgreSQL is none.
    #[error("no address of a PostgreSQL: {0}")]
    Postgres(&'static str),
}

impl UrlError {
    /// What to write instead.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Scheme => {
                "write `redis://HOST:6379/0` or `postgres://USER@HOST:5432/DATABASE`, or leave it empty for leases within \
                 this process"
            }
            Self::Redis => "write `redis://:PASSWORD@HOST:6379/0`, or `redis+unix:///run/redis.sock`",
            Self::Postgres(_) => {
                "write `postgres://USER:PASSWORD@HOST:5432/DATABASE`, with `?sslmode=require` for TLS and no other \
                 `sslmode`, or `postgres:///DATABASE?host=/run/postgresql&user=USER`"
            }
        }
    }
}

/// The store at `url`; empty for leases within this process. Nothing is sent yet.
///
/// # Errors
/// [`UrlError`].
pub fn of_url(url: &str) -> Result<Arc<dyn LeaseStore>, UrlError> {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    match scheme {
        "" if url.is_empty() => Ok(Arc::new(LocalLeases::default())),
        "redis" | "redis+unix" | "unix" => {
            RedisLeases::new(url).map(|leases| Arc::new(leases) as _).map_err(|_| UrlError::Redis)
        }
        "postgres" | "postgresql" => {
            PostgresLeases::new(url).map(|leases| Arc::new(leases) as _).map_err(UrlError::Postgres)
        }
        _ => Err(UrlError::Scheme),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_scheme_has_its_store_and_no_refusal_tells_the_address() {
        for (url, store) in [
            ("", "LocalLeases"),
            ("redis://:secret@127.0.0.1:1/0", "RedisLeases"),
            ("redis+unix:///run/redis.sock", "RedisLeases"),
            ("postgres://filesecbox:secret@127.0.0.1:1/leases", "PostgresLeases"),
            ("postgresql:///leases?host=/run/postgresql&user=u&password=secret", "PostgresLeases"),
        ] {
            let shown = format!("{:?}", of_url(url).unwrap());
            assert!(shown.starts_with(store) && !shown.contains("secret"), "{shown}");
        }
        for url in [
            "mysql://u:secret@h/d",
            "rediss://:secret@h/0",
            "secret",
            ":secret",
            "redis://:secret@h:port",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@/d",
            "postgres://u:secret@h/d?sslmode=verify-full",
            "postgres:///d?host=/run/postgresql&sslmode=require&user=u&password=secret",
        ] {
            let error = of_url(url).unwrap_err();
            assert!(!format!("{error}{error:?}").contains("secret"), "{error:?}");
        }
    }
}
