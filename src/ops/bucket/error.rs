//! [`BucketError`]: why a bucket did not do what was asked, without any word of its credentials.

use policy::VersionId;
use thiserror::Error;

/// Bytes of a message of the store that are logged.
const MESSAGE_BYTES_MAX: usize = 300;

/// Why the bucket of packages did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BucketError {
    /// It cannot be reached, or failed again and again.
    #[error("the bucket of packages cannot be asked now: try again in a few seconds")]
    Unreachable,
    /// It took too long.
    #[error("the bucket of packages took more than {seconds} s: try again, or have the operator look at it")]
    Slow {
        /// How long it was waited for.
        seconds: u64,
    },
    /// It takes this service's credentials for none, or for too little.
    #[error(
        "the bucket of packages refuses this service: the operator looks at `prepare.bucket` and its keys"
    )]
    Refused,
    /// What came is not what its name says.
    #[error(
        "the bytes that the bucket gave for the package {version} have another digest than their name says: nothing of them was kept, \
         try again, or put the package again"
    )]
    Damaged {
        /// The version.
        version: VersionId,
    },
    /// It has several packages of one version.
    #[error(
        "the bucket has several packages of the version {version}, which two requests put at once: have the operator remove all but the \
         right one"
    )]
    Several {
        /// The version.
        version: VersionId,
    },
    /// The version has a package of other bytes, or another request puts one at the same time.
    #[error(
        "the version {version} has a package of other bytes in the bucket, or gets one now: choose another version"
    )]
    Taken {
        /// The version.
        version: VersionId,
    },
    /// What came could not be kept on this host.
    #[error("the package {version} came from the bucket and cannot be kept here: {problem}")]
    Unkept {
        /// The version.
        version: VersionId,
        /// The fault.
        problem: String,
    },
}

/// What of a failure of the client is fit for a log: no body of an answer, since those of S3 name the key and what was signed.
pub(super) fn told(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code: String = code
        .map(|(code, _)| code.chars().filter(char::is_ascii_alphanumeric).take(64).collect())
        .unwrap_or_default();
    if let Some(end) = text.find('<') {
        text.truncate(end);
    }
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
    if code.is_empty() { text } else { format!("{text} ({code})") }
}

/// Whether the store refuses the credentials, or what they are to do.
pub(super) fn is_refusal(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    match error {
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => true,
        // Of a list the client tells the status in the message alone.
        E::Generic { .. } => {
            let told = told(error);
            ["status code: 401", "status code: 403"].iter().any(|status| told.contains(status))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_the_code_alone_is_told() {
        let source = "403 Forbidden: <?xml?><Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";
        let error = object_store::Error::Generic { store: "S3", source: source.into() };
        assert_eq!(told(&error), "Generic S3 error: 403 Forbidden:  (SignatureDoesNotMatch)");
        let long = object_store::Error::Generic { store: "S3", source: "字".repeat(1000).into() };
        assert!(told(&long).len() <= MESSAGE_BYTES_MAX);
    }
}
