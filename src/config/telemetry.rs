//! Settings about traces: where spans are sent, and how many.

use std::str::FromStr;

use axum::http::Uri;
use serde::Deserialize;

use super::ConfigError;

/// Longest name of a service, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Most spans that may wait; room for each is made at start.
const QUEUE_MAX: usize = 65_536;

/// Traces for a collector.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector's OTLP/HTTP receiver, `http://HOST:PORT`; empty sends nothing.
    pub otlp_endpoint: String,
    /// The name of the service in traces.
    pub service_name: String,
    /// The part of requests without a `traceparent` that have spans, from 0 to 1.
    pub sample_ratio: f64,
    /// Spans that may wait to be sent; further ones are dropped and counted.
    pub queue: usize,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: String::new(),
            service_name: "filesecbox".to_owned(),
            sample_ratio: 1.0,
            queue: 2048,
        }
    }
}

impl TelemetryConfig {
    /// The URL that spans are sent to; `None` when none are.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: it is not `http://HOST:PORT`.
    pub fn traces_url(&self) -> Result<Option<String>, ConfigError> {
        if self.otlp_endpoint.is_empty() {
            return Ok(None);
        }
        let wrong = |advice| ConfigError::Value {
            setting: "telemetry.otlp_endpoint",
            // A log must not have a password, not even in a setting that is refused.
            value: if self.otlp_endpoint.contains('@') {
                "an address with a user in it".to_owned()
            } else {
                format!("`{}`", self.otlp_endpoint)
            },
            advice,
        };
        let plain = "set `http://HOST:PORT` and nothing after it, or \"\" for no traces";
        if self.otlp_endpoint.starts_with("https:") {
            return Err(wrong(
                "set `http://HOST:PORT`: TLS belongs to a collector or proxy beside the service",
            ));
        }
        if self.otlp_endpoint.contains(['#', '@', '?']) {
            return Err(wrong(plain));
        }
        let uri = Uri::from_str(&self.otlp_endpoint).map_err(|_| wrong(plain))?;
        let has_place =
            uri.host().is_some_and(|host| !host.is_empty()) && uri.port_u16().is_some_and(|port| port > 0);
        match uri.authority() {
            Some(authority) if uri.scheme_str() == Some("http") && has_place && uri.path() == "/" => {
                // As the OTLP specification appends it to an endpoint for all signals.
                Ok(Some(format!("http://{authority}/v1/traces")))
            }
            _ => Err(wrong(plain)),
        }
    }

    /// Checks what the types do not say.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.traces_url()?;
        let name = &self.service_name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let (setting, advice) =
                ("telemetry.service_name", "set 1 to 128 bytes without control characters");
            return Err(ConfigError::Value { setting, value: format!("{name:?}"), advice });
        }
        // Not a number is in no range.
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            let (setting, advice) = ("telemetry.sample_ratio", "set a number from 0 to 1");
            return Err(ConfigError::Value { setting, value: self.sample_ratio.to_string(), advice });
        }
        if !(1..=QUEUE_MAX).contains(&self.queue) {
            let (setting, advice) = ("telemetry.queue", "set 1 to 65536");
            return Err(ConfigError::Value { setting, value: self.queue.to_string(), advice });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(endpoint: &str) -> TelemetryConfig {
        TelemetryConfig { otlp_endpoint: endpoint.to_owned(), ..TelemetryConfig::default() }
    }

    #[test]
    fn an_endpoint_is_plain_http_with_a_port_and_nothing_else() {
        for (right, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(at(right).traces_url().unwrap().as_deref(), Some(url));
        }
        assert_eq!(at("").traces_url().unwrap(), None);
        for wrong in [
            "https://collector:4318",
            "http://collector",
            "http://collector:0",
            "http://collector:70000",
            "http://:4318",
            "http://user:secret@collector:4318",
            "http://collector:4318/v1/traces",
            "http://collector:4318?a=b",
            "http://collector:4318#a",
            "http://two words:1",
            "collector:4318",
            "unix:/run/collector",
            "/",
            " ",
        ] {
            let error = at(wrong).check().expect_err(wrong).to_string();
            assert!(error.contains("telemetry.otlp_endpoint") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn numbers_and_names_that_cannot_be_meant_are_refused() {
        let default = TelemetryConfig::default;
        default().check().unwrap();
        TelemetryConfig { sample_ratio: 0.0, queue: QUEUE_MAX, service_name: "技能".into(), ..default() }
            .check()
            .unwrap();
        for wrong in [
            TelemetryConfig { sample_ratio: 1.5, ..default() },
            TelemetryConfig { sample_ratio: -0.1, ..default() },
            TelemetryConfig { sample_ratio: f64::NAN, ..default() },
            TelemetryConfig { queue: 0, ..default() },
            TelemetryConfig { queue: QUEUE_MAX + 1, ..default() },
            TelemetryConfig { service_name: String::new(), ..default() },
            TelemetryConfig { service_name: "a\nb".into(), ..default() },
            TelemetryConfig { service_name: "x".repeat(129), ..default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
