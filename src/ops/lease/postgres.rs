//! [`PostgresLeases`]: leases in a PostgreSQL, for services that share what they prepare.
//!
//! A lease is a row of the table `filesecbox_leases`. Its epoch is the time of the database in microseconds, and more than the
//! last one of the row in any case. Each change is one statement, which the lock of the row puts in an order; a sequence would
//! give numbers before that lock is had, and two acquisitions could have them the wrong way round. So rows are kept when leases
//! end. A row that was last used a month ago goes, and the time alone keeps the next epoch above it. No clock but the database's
//! is asked.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls};

use super::postgres_tls::Tls;
use super::{Epoch, LeaseStore, StoreError};

/// How long a connection, and each answer on it, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a message of the database that are told.
const MESSAGE_BYTES_MAX: usize = 500;

/// What a session begins with, in milliseconds. A row that another session holds is given up before the caller gives up the
/// connection, which all leases share.
const SESSION: &str = "SET statement_timeout = 4000; SET lock_timeout = 1000";
/// Whether the table is there. Making it, even where it is, takes a right that the role need not have.
const IS_THERE: &str = "SELECT to_regclass('filesecbox_leases') IS NOT NULL";
/// Makes the table where it is missing, one service after the other: `IF NOT EXISTS` alone fails when two make it at once.
const MAKE: &str = "BEGIN; \
    SELECT pg_advisory_xact_lock(7310590187413431667); \
    CREATE TABLE IF NOT EXISTS filesecbox_leases ( \
        key text PRIMARY KEY, token text NOT NULL, epoch bigint NOT NULL, until timestamptz NOT NULL); \
    COMMIT";
/// Takes the lease where it is free. `clock_timestamp` and not `now`, which stands still while the row is waited for.
const ACQUIRE: &str = "INSERT INTO filesecbox_leases AS held (key, token, epoch, until) \
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
        clock_timestamp() + $3 * interval '1 millisecond') \
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, \
        epoch = greatest(held.epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), \
        until = clock_timestamp() + $3 * interval '1 millisecond' \
    WHERE held.until <= clock_timestamp() \
    RETURNING epoch";
/// Compares the token and prolongs the lease.
const RENEW: &str = "UPDATE filesecbox_leases SET until = clock_timestamp() + $3 * interval '1 millisecond' \
    WHERE key = $1 AND token = $2 AND until > clock_timestamp() RETURNING epoch";
/// Compares the token and ends the lease; the row stays for its epoch.
const RELEASE: &str = "UPDATE filesecbox_leases SET until = clock_timestamp() \
    WHERE key = $1 AND token = $2 AND until > clock_timestamp() RETURNING epoch";
/// Removes rows that were last used a month ago, some at a time, and none that another statement holds.
const SWEEP: &str = "DELETE FROM filesecbox_leases WHERE key IN ( \
    SELECT key FROM filesecbox_leases WHERE until < clock_timestamp() - interval '30 days' \
    LIMIT 100 FOR UPDATE SKIP LOCKED)";

/// Leases in a PostgreSQL. Connects when it is asked first, and again after a failure.
pub struct PostgresLeases {
    config: Config,
    tls: Option<Tls>,
    connection: Mutex<Option<Arc<Client>>>,
}

impl fmt::Debug for PostgresLeases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address, which may have a password.
        formatter.debug_struct("PostgresLeases").finish_non_exhaustive()
    }
}

/// A call that failed.
enum Failure {
    Database(tokio_postgres::Error),
    Silent,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl PostgresLeases {
    /// Leases in the database at `url`, such as `postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require` or
    /// `postgres:///DATABASE?host=/run/postgresql&user=USER`. Nothing is sent yet. The connection is encrypted with
    /// `sslmode=require`, and the certificate compared with the name of the host; it is not encrypted without.
    ///
    /// # Errors
    /// The address is none: why, without any part of it.
    pub fn new(url: &str) -> Result<Self, &'static str> {
        let mut config: Config = url.parse().map_err(|_| "it cannot be read, or has an unknown parameter")?;
        let hosts = config.get_hosts();
        if hosts.is_empty() || hosts.iter().any(|host| matches!(host, Host::Tcp(name) if name.is_empty())) {
            return Err("it names no host");
        }
        if config.get_user().is_none() {
            return Err("it names no user");
        }
        if url.contains("sslmode=prefer") {
            return Err("`sslmode=prefer` is no promise that the connection is encrypted");
        }
        let is_encrypted = config.get_ssl_mode() == SslMode::Require;
        if is_encrypted && hosts.iter().any(|host| matches!(host, Host::Unix(_))) {
            return Err("a socket of this host is not encrypted: leave `sslmode` out");
        }
        let tls = is_encrypted.then(Tls::new).transpose().map_err(|_| "no TLS can be spoken")?;
        if hosts.len() > 1 {
            // Of several the one that takes changes: a replica knows leases, and gives none.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.connect_timeout(PATIENCE).tcp_user_timeout(PATIENCE).application_name("filesecbox");
        Ok(Self { config, tls, connection: Mutex::default() })
    }

    /// The connection, which all calls share.
    async fn connection(&self) -> Result<Arc<Client>, Failure> {
        let mut connection = self.connection.lock().await;
        if let Some(client) = connection.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let client = match &self.tls {
            Some(tls) => {
                let (client, driver) = self.config.connect(tls.clone()).await?;
                tokio::spawn(driver);
                client
            }
            None => {
                let (client, driver) = self.config.connect(NoTls).await?;
                tokio::spawn(driver);
                client
            }
        };
        client.batch_execute(SESSION).await?;
        let is_there: bool = client.query_typed_one(IS_THERE, &[]).await?.try_get(0)?;
        if !is_there {
            client.batch_execute(MAKE).await?;
        }
        client.execute_typed(SWEEP, &[]).await?;
        let client = Arc::new(client);
        *connection = Some(Arc::clone(&client));
        Ok(client)
    }

    /// The epoch that a statement gives, where it has touched a row. After a failure the next call has another connection.
    async fn ask(
        &self,
        statement: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Option<Epoch>, StoreError> {
        let asked = async {
            let client = self.connection().await?;
            let row = client.query_typed_opt(statement, arguments).await?;
            let epoch = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
            Ok(epoch.map(|epoch| Epoch(epoch.unsigned_abs())))
        };
        let told = timeout(PATIENCE, asked).await.unwrap_or(Err(Failure::Silent));
        if told.as_ref().is_err_and(Failure::ends_connection) {
            // Dropping the client ends its connection.
            *self.connection.lock().await = None;
        }
        told.map_err(|failure| StoreError(failure.message()))
    }
}

impl Failure {
    /// Whether another connection may do better. One that has waited for a row in vain is as good as any.
    fn ends_connection(&self) -> bool {
        let Self::Database(error) = self else { return true };
        !matches!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED))
    }

    /// What the database or the connection said. Neither names the password.
    fn message(&self) -> String {
        let Self::Database(error) = self else { return "it did not answer in time".to_owned() };
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message
    }
}

fn milliseconds(ttl: Duration) -> f64 {
    ttl.as_secs_f64() * 1000.0
}

#[async_trait]
impl LeaseStore for PostgresLeases {
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<Option<Epoch>, StoreError> {
        let ttl = milliseconds(ttl);
        self.ask(ACQUIRE, &[(&key, Type::TEXT), (&token, Type::TEXT), (&ttl, Type::FLOAT8)]).await
    }

    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError> {
        let ttl = milliseconds(ttl);
        let told = self.ask(RENEW, &[(&key, Type::TEXT), (&token, Type::TEXT), (&ttl, Type::FLOAT8)]).await;
        Ok(told?.is_some())
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError> {
        Ok(self.ask(RELEASE, &[(&key, Type::TEXT), (&token, Type::TEXT)]).await?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::ops::lease::contract;
    use crate::ops::lease::postgres_server::PostgresServer;

    const TTL: Duration = Duration::from_secs(60);

    fn leases(server: &PostgresServer) -> PostgresLeases {
        PostgresLeases::new(&PostgresServer::url(server.socket_dir())).unwrap()
    }

    async fn query(leases: &PostgresLeases, statement: &str) -> i64 {
        let client = leases.connection().await.ok().unwrap();
        client.query_typed_one(statement, &[]).await.unwrap().get(0)
    }

    #[tokio::test]
    async fn leases_in_postgresql_keep_the_contract() {
        let Some(server) = PostgresServer::start() else { return };
        contract::check(&leases(&server), tokio::time::sleep).await;
    }

    #[tokio::test]
    async fn services_that_start_at_once_make_one_table_and_give_one_lease() {
        let Some(server) = PostgresServer::start() else { return };
        let services: Vec<PostgresLeases> = (0..12).map(|_| leases(&server)).collect();
        let asked = join_all(services.iter().zip(0..).map(|(leases, number)| async move {
            leases.acquire("a", &format!("token-{number}"), TTL).await.unwrap()
        }));
        assert_eq!(asked.await.into_iter().flatten().count(), 1);
        assert_eq!(query(&services[0], "SELECT count(*) FROM filesecbox_leases").await, 1);
    }

    #[tokio::test]
    async fn an_epoch_never_falls_even_where_the_clock_of_the_database_was_set_back() {
        let Some(server) = PostgresServer::start() else { return };
        let leases = leases(&server);
        let first = leases.acquire("a", "one", TTL).await.unwrap().unwrap();
        // As after an hour in which the clock was wrong.
        let ahead = "UPDATE filesecbox_leases SET epoch = epoch + 3600000000, until = clock_timestamp() RETURNING epoch";
        let ahead = query(&leases, ahead).await;
        assert_eq!(ahead, i64::try_from(first.0).unwrap() + 3_600_000_000);
        let second = leases.acquire("a", "two", TTL).await.unwrap().unwrap();
        assert_eq!(second, Epoch(ahead.unsigned_abs() + 1));
    }

    #[tokio::test]
    async fn rows_of_leases_long_ended_go_and_others_stay() {
        let Some(server) = PostgresServer::start() else { return };
        let first = leases(&server);
        for key in ["old", "ended", "held"] {
            assert!(first.acquire(key, "token", TTL).await.unwrap().is_some());
        }
        assert!(first.release("ended", "token").await.unwrap());
        let aged = "UPDATE filesecbox_leases SET until = until - interval '31 days' WHERE key = 'old' RETURNING epoch";
        query(&first, aged).await;
        // At the next connection.
        let left = "SELECT count(*) FROM filesecbox_leases WHERE key IN ('ended', 'held')";
        assert_eq!(query(&leases(&server), left).await, 2);
        assert_eq!(query(&first, "SELECT count(*) FROM filesecbox_leases").await, 2);
    }

    #[tokio::test]
    async fn a_database_that_is_gone_is_an_error_and_one_that_is_back_still_knows_the_lease() {
        let Some(mut server) = PostgresServer::start() else { return };
        let leases = leases(&server);
        let first = leases.acquire("a", "token", TTL).await.unwrap().unwrap();
        server.stop();
        let told = leases.renew("a", "token", TTL).await.unwrap_err().to_string();
        assert!(!told.contains("s3cret"), "{told}");
        assert!(leases.acquire("a", "token", TTL).await.is_err());
        server.restart();
        assert!(leases.renew("a", "token", TTL).await.unwrap());
        assert_eq!(leases.acquire("a", "other", TTL).await.unwrap(), None);
        assert!(leases.release("a", "token").await.unwrap());
        assert!(leases.acquire("a", "other", TTL).await.unwrap().unwrap() > first);
    }

    #[tokio::test]
    async fn a_row_that_another_session_holds_delays_other_leases_and_refuses_none() {
        let Some(server) = PostgresServer::start() else { return };
        let leases = leases(&server);
        assert!(leases.acquire("held", "token", TTL).await.unwrap().is_some());
        let other = PostgresLeases::new(&PostgresServer::url(server.socket_dir())).unwrap();
        let session = other.connection().await.ok().unwrap();
        session.batch_execute("BEGIN; SELECT 1 FROM filesecbox_leases FOR UPDATE").await.unwrap();
        let (held, free) =
            tokio::join!(leases.renew("held", "token", TTL), leases.acquire("free", "token", TTL));
        assert!(held.is_err() && free.unwrap().is_some());
        session.batch_execute("COMMIT").await.unwrap();
        assert!(leases.renew("held", "token", TTL).await.unwrap());
    }

    #[tokio::test]
    async fn a_role_without_the_right_to_make_tables_uses_the_one_that_is_there() {
        let Some(server) = PostgresServer::start() else { return };
        let owner = leases(&server);
        let client = owner.connection().await.ok().unwrap();
        client
            .batch_execute(
                "CREATE ROLE plain LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON filesecbox_leases TO plain",
            )
            .await
            .unwrap();
        let url = PostgresServer::url(server.socket_dir()).replace("user=filesecbox", "user=plain");
        let plain = PostgresLeases::new(&url).unwrap();
        assert!(plain.acquire("a", "token", TTL).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn encryption_that_was_asked_for_is_not_done_without() {
        // A server without TLS says `N` (https://www.postgresql.org/docs/current/protocol-flow.html).
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refusing = tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 8];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"N").await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            rest
        });
        let url = format!("postgres://u:s3cret@localhost:{port}/d?sslmode=require");
        let leases = PostgresLeases::new(&url).unwrap();
        let told = leases.acquire("a", "token", TTL).await.unwrap_err().to_string();
        assert!(told.contains("TLS") && !told.contains("s3cret"), "{told}");
        assert_eq!(refusing.await.unwrap(), b"", "nothing was sent in the clear");
        assert!(!format!("{leases:?}").contains("s3cret"));
    }
}
