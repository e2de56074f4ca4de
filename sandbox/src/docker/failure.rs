//! What a failure of the engine means for a caller.

use bollard::errors::Error as Engine;

use crate::{Error, ErrorKind};

/// In the message of an engine whose container ended between the making of a process and its start: Docker 20.10 answers that
/// with 500, later ones with 409.
const NOT_RUNNING: &str = " is not running";

/// Names a failure of the engine.
pub(super) fn failed(operation: &'static str) -> impl Fn(Engine) -> Error {
    move |error| {
        let (kind, message) = match &error {
            Engine::DockerResponseServerError { status_code, message }
                if matches!(status_code, 404 | 409) || message.contains(NOT_RUNNING) =>
            {
                (ErrorKind::Disconnected, "the container or its image is not there, or does not run")
            }
            Engine::RequestTimeoutError => (ErrorKind::Timeout, "the Docker engine did not answer in time"),
            Engine::DockerResponseServerError { status_code: 400, .. } => {
                (ErrorKind::Invalid, "the Docker engine refused the request")
            }
            Engine::DockerResponseServerError { .. } | Engine::JsonDataError { .. } => {
                (ErrorKind::Internal, "the Docker engine failed")
            }
            _ => (ErrorKind::Disconnected, "the Docker engine cannot be reached"),
        };
        Error::new(kind, operation, message).because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_ended_meanwhile_is_told_from_a_failure() {
        let kind = |status_code, message: &str| {
            failed("exec")(Engine::DockerResponseServerError { status_code, message: message.to_owned() })
                .kind()
        };
        let ended = "Container 1f2e is not running: Exited (137) Less than a second ago";
        assert_eq!(kind(500, ended), ErrorKind::Disconnected);
        assert_eq!(kind(409, ended), ErrorKind::Disconnected);
        assert_eq!(kind(500, "no space left on device"), ErrorKind::Internal);
    }
}
