//! [`Adapter`]: what the platform's adapter asks, and how it reads the answers.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Client, Reply, Service, Settings, encoded};

/// The beginning of every path.
pub(crate) const API: &str = "/api/v1/devbox";
/// The setting that switches the dialect on.
pub(crate) const ON: &str = "[devbox]\nenabled = true\n";

/// A service with devboxes.
pub(crate) fn service(config: &str) -> Service {
    Service::configured(&format!("{ON}{config}"))
}

/// A service with devboxes whose data directory outlives it.
pub(crate) fn lasting(root: &std::path::Path, config: &str) -> Service {
    let config = Some(format!("{ON}{config}"));
    Service::with(Settings { config, root: Some(root.to_owned()), ..Settings::default() })
}

/// Ends a service as a loss of power does.
pub(crate) fn kill(mut service: Service) {
    kill_process(Pid::from_raw(service.pid().try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    service.wait();
}

/// One devbox, asked for as the adapter does.
pub(crate) struct Adapter {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Adapter {
    pub(crate) fn new(service: &Service, name: &str) -> Self {
        Self { client: service.client.clone(), name: name.to_owned() }
    }

    pub(crate) fn url(&self, below: &str) -> String {
        format!("{API}/{}{below}", self.name)
    }

    pub(crate) fn create(&self) -> Value {
        data(&self.client.post_json(API, &json!({ "name": self.name })))
    }

    pub(crate) fn change(&self, what: &str) -> Value {
        data(&self.client.post(self.url(&format!("/{what}")), ""))
    }

    pub(crate) fn phase(&self) -> String {
        let data = data(&self.client.get(self.url("")));
        data["state"]["phase"].as_str().unwrap().to_owned()
    }

    pub(crate) fn try_exec(&self, command: &[&str]) -> Reply {
        self.client.post_json(self.url("/exec"), &json!({ "command": command, "timeoutSeconds": 20 }))
    }

    pub(crate) fn exec(&self, command: &[&str]) -> Value {
        data(&self.try_exec(command))
    }

    /// Runs a line that must succeed, as the adapter does; its output.
    #[track_caller]
    pub(crate) fn line(&self, line: &str) -> String {
        let data = self.exec(&["bash", "-lc", &format!("cd /workspace && {line}")]);
        assert_eq!(data["exitCode"], 0, "{line}: {data}");
        data["stdout"].as_str().unwrap().to_owned()
    }

    pub(crate) fn try_upload(&self, path: &str, mode: &str, bytes: &[u8]) -> Reply {
        let target = self.url(&format!("/files/upload?path={}&mode={mode}", encoded(path)));
        self.client
            .request("POST", target)
            .header("content-type", "application/octet-stream")
            .body(bytes)
            .send()
    }

    pub(crate) fn upload(&self, path: &str, mode: &str, bytes: &[u8]) -> Value {
        data(&self.try_upload(path, mode, bytes))
    }

    pub(crate) fn download(&self, path: &str) -> Reply {
        self.client.get(self.url(&format!("/files/download?path={}", encoded(path))))
    }
}

/// The `data` of a success, whose envelope is exactly the dialect's.
#[track_caller]
pub(crate) fn data(reply: &Reply) -> Value {
    let told = reply.json();
    assert_eq!((reply.status, &told["code"], &told["message"]), (200, &json!(200), &json!("ok")), "{told}");
    assert_eq!(told.as_object().unwrap().len(), 3, "{told}");
    told["data"].clone()
}

/// The sentence of a failure, whose envelope is exactly the dialect's.
#[track_caller]
pub(crate) fn failed(reply: &Reply, status: u16) -> String {
    let told = reply.json();
    assert_eq!((reply.status, &told["code"]), (status, &json!(status)), "{told}");
    assert!(told["data"].is_null() && told.as_object().unwrap().len() == 3, "{told}");
    let sentence = told["message"].as_str().unwrap();
    assert!(!sentence.is_empty(), "{told}");
    sentence.to_owned()
}
