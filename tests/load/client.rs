//! [`Client`]: one kept-alive connection that knows the routes and takes every answer of 500 or above for a failure.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

/// The connection broke before a whole answer arrived, or the service is stopping: the request may or may not have been
/// done.
#[derive(Debug)]
pub(crate) struct Broken;

/// An answer below 500.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The body for a message.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(400).collect()
    }
}

/// One client of one service.
pub(crate) struct Client {
    agent: Agent,
    url: String,
    token: Option<String>,
}

impl Client {
    pub(crate) fn new(url: &str) -> Self {
        Self::waiting(url, Duration::from_secs(60))
    }

    /// A client that has a token.
    pub(crate) fn with_token(url: &str, token: String) -> Self {
        Self { token: Some(token), ..Self::new(url) }
    }

    /// A client whose commands take long.
    pub(crate) fn patient(url: &str) -> Self {
        Self::waiting(url, Duration::from_secs(180))
    }

    fn waiting(url: &str, patience: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(patience))
            .max_idle_connections(1)
            .build();
        Self { agent: config.into(), url: url.to_owned(), token: None }
    }

    /// Sends a request; `If-Match` goes with it when `tag` is given.
    ///
    /// # Panics
    /// On an answer of 500 or above, but for a quota.
    pub(crate) fn send(
        &self,
        method: &str,
        target: &str,
        tag: Option<&str>,
        body: &[u8],
    ) -> Result<Answer, Broken> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.url));
        if let Some(tag) = tag {
            request = request.header("If-Match", tag);
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answered = if matches!(method, "GET" | "DELETE") {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let mut response = answered.map_err(|_| Broken)?;
        let status = response.status().as_u16();
        let etag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        let body = response.body_mut().with_config().limit(1 << 30).read_to_vec().map_err(|_| Broken)?;
        if status == 503 {
            // It is about to stop, and said so instead of breaking the connection.
            return Err(Broken);
        }
        let answer = Answer { status, etag, body };
        // 507 is a user's quota.
        assert!(status < 500 || status == 507, "{method} {target} was answered {status}: {}", answer.text());
        Ok(answer)
    }

    pub(crate) fn get(&self, target: &str) -> Result<Answer, Broken> {
        self.send("GET", target, None, b"")
    }

    pub(crate) fn put(&self, target: &str, body: &[u8]) -> Result<Answer, Broken> {
        self.send("PUT", target, None, body)
    }

    pub(crate) fn delete(&self, target: &str) -> Result<Answer, Broken> {
        self.send("DELETE", target, None, b"")
    }

    pub(crate) fn post(&self, target: &str, body: &Value) -> Result<Answer, Broken> {
        self.send("POST", target, None, body.to_string().as_bytes())
    }

    /// Uploads a ZIP as the body.
    pub(crate) fn upload(&self, user_agent: &str, scope: &str, archive: &[u8]) -> Result<Answer, Broken> {
        let target = format!("{}/v1/skills/{user_agent}/upload?scope={scope}", self.url);
        let mut request = Request::post(target).header("Content-Type", "application/zip");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(archive).unwrap();
        let mut response = self.agent.run(request).map_err(|_| Broken)?;
        let status = response.status().as_u16();
        let body = response.body_mut().read_to_vec().map_err(|_| Broken)?;
        let answer = Answer { status, etag: None, body };
        assert!(status < 500, "an upload was answered {status}: {}", answer.text());
        Ok(answer)
    }

    /// Runs a line of shell in a tree.
    pub(crate) fn shell(&self, tree: &str, line: &str) -> Result<Answer, Broken> {
        self.post(&format!("{tree}/exec"), &json!({ "shell": line, "timeout_ms": 20_000 }))
    }

    /// The paths of all files of a tree; `None` when there is no such tree.
    pub(crate) fn files(&self, tree: &str) -> Result<Option<Vec<String>>, Broken> {
        let answer = self.get(&format!("{tree}/files"))?;
        if answer.status == 404 {
            return Ok(None);
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        Ok(Some(serde_json::from_value(answer.json()["data"].clone()).unwrap()))
    }
}
