//! [`RedisLeases`]: leases in a Redis, for services that share what they prepare.
//!
//! A lease is the key `lock:` and the lease's own, with the token as its value and the time as its expiry, as FastGPT has it: both
//! may run side by side on one Redis. Its epoch is the time of the Redis, which commands of one key cannot see twice.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Script};
use tokio::sync::Mutex;

use super::{Epoch, LeaseStore, StoreError};

/// How long a connection, and each answer on it, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Takes the lease where it is free, and tells the time in microseconds; 0 where another holds it.
const ACQUIRE: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then local t = redis.call('time') \
                       return t[1] * 1000000 + t[2] else return 0 end";
/// Compares the token and prolongs the lease, in one step.
const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
/// Compares the token and gives the lease back, in one step.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Leases in a Redis. Connects when it is asked first, and again after a failure.
pub struct RedisLeases {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl fmt::Debug for RedisLeases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address, which may have a password.
        formatter.debug_struct("RedisLeases").finish_non_exhaustive()
    }
}

impl RedisLeases {
    /// Leases in the Redis at `url`, such as `redis://:PASSWORD@HOST:6379/0` or `redis+unix:///run/redis.sock`. Nothing is sent yet.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let client = Client::open(url).map_err(|error| StoreError(error.to_string()))?;
        Ok(Self { client, connection: Mutex::default() })
    }

    /// The connection, which all calls share.
    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *connection = Some(made.clone());
        Ok(made)
    }

    /// The result of a call; after a failure the next one has another connection.
    async fn told<T>(&self, answer: Result<T, RedisError>) -> Result<T, StoreError> {
        if answer.is_err() {
            *self.connection.lock().await = None;
        }
        answer.map_err(|error| StoreError(error.to_string()))
    }

    async fn call(&self, script: &str, key: &str, arguments: &[&str]) -> Result<u64, StoreError> {
        let asked = async {
            let mut connection = self.connection().await?;
            let script = Script::new(script);
            let mut call = script.key(named(key));
            for argument in arguments {
                call.arg(*argument);
            }
            call.invoke_async::<u64>(&mut connection).await
        };
        self.told(asked.await).await
    }
}

fn named(key: &str) -> String {
    format!("lock:{key}")
}

fn milliseconds(ttl: Duration) -> String {
    ttl.as_millis().max(1).to_string()
}

#[async_trait]
impl LeaseStore for RedisLeases {
    async fn acquire(&self, key: &str, token: &str, ttl: Duration) -> Result<Option<Epoch>, StoreError> {
        let epoch = self.call(ACQUIRE, key, &[token, &milliseconds(ttl)]).await?;
        Ok((epoch > 0).then_some(Epoch(epoch)))
    }

    async fn renew(&self, key: &str, token: &str, ttl: Duration) -> Result<bool, StoreError> {
        Ok(self.call(RENEW, key, &[token, &milliseconds(ttl)]).await? == 1)
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, StoreError> {
        Ok(self.call(RELEASE, key, &[token]).await? == 1)
    }
}

#[cfg(test)]
#[expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a skipped test says why, and a server is started"
)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::ops::lease::contract;

    /// A Redis of the test's own, killed when dropped.
    struct Server {
        child: Child,
        dir: tempfile::TempDir,
    }

    impl Server {
        /// `None` where the program is not installed.
        fn start() -> Option<Self> {
            let dir = tempfile::tempdir().unwrap();
            let child = Command::new("redis-server")
                .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
                .arg(dir.path().join("socket"))
                .current_dir(dir.path())
                .stdout(Stdio::null())
                .spawn();
            match child {
                Ok(child) => Some(Self { child, dir }),
                Err(error) => {
                    let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
                    assert!(
                        !required.split(',').any(|name| name.trim() == "redis"),
                        "`redis` is required: {error}"
                    );
                    eprintln!("SKIPPED: leases in Redis: `redis-server` cannot be started: {error}");
                    None
                }
            }
        }

        fn leases(&self) -> RedisLeases {
            let socket = self.dir.path().join("socket");
            RedisLeases::new(&format!("redis+unix://{}", socket.to_str().unwrap())).unwrap()
        }

        async fn await_ready(&self) {
            let leases = self.leases();
            let ready = async {
                while leases.release("none", "none").await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), ready).await.unwrap();
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }

    #[tokio::test]
    async fn leases_in_redis_keep_the_contract() {
        let Some(server) = Server::start() else { return };
        server.await_ready().await;
        contract::check(&server.leases(), tokio::time::sleep).await;
    }

    #[tokio::test]
    async fn a_redis_that_is_gone_is_an_error_and_one_that_is_back_serves_again() {
        let Some(mut server) = Server::start() else { return };
        server.await_ready().await;
        let leases = server.leases();
        let ttl = Duration::from_secs(60);
        assert!(leases.acquire("a", "token", ttl).await.unwrap().is_some());
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        assert!(leases.renew("a", "token", ttl).await.is_err());
        assert!(leases.acquire("a", "token", ttl).await.is_err());
        let again = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(server.dir.path().join("socket"))
            .stdout(Stdio::null())
            .spawn();
        server.child = again.unwrap();
        server.await_ready().await;
        assert!(!leases.renew("a", "token", ttl).await.unwrap(), "it has forgotten the lease");
        assert!(leases.acquire("a", "token", ttl).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn the_key_and_its_value_are_those_of_the_founding_platform() {
        let Some(server) = Server::start() else { return };
        server.await_ready().await;
        let leases = server.leases();
        let ttl = Duration::from_secs(60);
        assert!(leases.acquire("agent-sandbox:init:u/a", "token", ttl).await.unwrap().is_some());
        let mut connection = leases.connection().await.unwrap();
        let value: String =
            redis::cmd("GET").arg("lock:agent-sandbox:init:u/a").query_async(&mut connection).await.unwrap();
        let left: i64 =
            redis::cmd("PTTL").arg("lock:agent-sandbox:init:u/a").query_async(&mut connection).await.unwrap();
        assert_eq!(value, "token");
        assert!((1..=60_000).contains(&left), "{left}");
    }

    #[test]
    fn an_address_that_is_none_is_refused_and_no_password_is_shown() {
        assert!(RedisLeases::new("http://host/").is_err());
        let leases = RedisLeases::new("redis://:secret@127.0.0.1:1/0").unwrap();
        assert!(!format!("{leases:?}").contains("secret"));
    }
}
