//! The names of resources: `workspace:///` and the path of a file, each segment percent-encoded.
//!
//! The three slashes leave no place for a host, which clients put into lower case.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sandbox::SandboxPath;

/// The beginning of each.
const WORKSPACE: &str = "workspace:///";
/// The template of all.
pub(super) const TEMPLATE: &str = "workspace:///{+path}";
/// Characters that are encoded: all but the unreserved ones (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name of the file at `path`, relative to the workspace.
pub(super) fn of(path: &str) -> String {
    let segments: Vec<String> =
        path.split('/').map(|segment| utf8_percent_encode(segment, ENCODED).to_string()).collect();
    format!("{WORKSPACE}{}", segments.join("/"))
}

/// The path that `uri` names, encoded or not; nothing for what can be no file of the workspace.
pub(super) fn path(uri: &str) -> Option<SandboxPath> {
    let mut path = SandboxPath::workspace();
    for segment in uri.strip_prefix(WORKSPACE)?.split('/') {
        let segment = percent_decode_str(segment).decode_utf8().ok()?;
        if matches!(&*segment, "" | "." | "..") || segment.contains(['/', '\0']) {
            return None;
        }
        path = path.join(&segment).ok()?;
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_path_and_need_not_be_encoded() {
        for relative in ["a", "a/b.md", "目录/你好 \"x\" %2F.txt", "a?b#c", ".x/~", "%", "a:b@c"] {
            let uri = of(relative);
            assert!(uri.is_ascii() && !uri.contains([' ', '?', '#', '"']), "{uri}");
            assert_eq!(path(&uri).unwrap().as_str(), format!("/workspace/{relative}"));
        }
        assert_eq!(path("workspace:///目录/a b?#").unwrap().as_str(), "/workspace/目录/a b?#");
        assert_eq!(of("目/a"), "workspace:///%E7%9B%AE/a");
    }

    #[test]
    fn no_name_leads_out_of_the_workspace() {
        for uri in [
            "workspace:///",
            "workspace:///..",
            "workspace:///../x",
            "workspace:///a/%2E%2e/%2e%2e/etc",
            "workspace:///a%2F..%2F..%2Fx",
            "workspace:///%2Fetc/passwd",
            "workspace:////etc/passwd",
            "workspace:///a//b",
            "workspace:///a/",
            "workspace:///a%00",
            "workspace:///%ff",
            "workspace://a/b",
            "WORKSPACE:///a",
            "file:///etc/passwd",
            "/etc/passwd",
            "",
        ] {
            assert_eq!(path(uri), None, "{uri}");
        }
    }
}
