//! The names of resources: `workspace:///` and the path of a file, or `skill://` and the id of a skill with the path of a file in it,
//! each segment percent-encoded.
//!
//! The three slashes leave no place for a host, which clients put into lower case. The names of skills are as their extension has them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use policy::SkillId;
use sandbox::SandboxPath;

/// The beginning of each file of the workspace.
const WORKSPACE: &str = "workspace:///";
/// The beginning of each file of a skill.
const SKILL: &str = "skill://";
/// Where the skills are in the workspace.
const SKILLS: &str = "skills";
/// The templates of all.
pub(super) const TEMPLATES: [&str; 2] = ["workspace:///{+path}", "skill://{+path}"];
/// Characters that are encoded: all but the unreserved ones (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path with each segment encoded.
pub(super) fn encoded(path: &str) -> String {
    let segments: Vec<String> =
        path.split('/').map(|segment| utf8_percent_encode(segment, ENCODED).to_string()).collect();
    segments.join("/")
}

/// The name of the file at `path`, relative to the workspace.
pub(super) fn of(path: &str) -> String {
    format!("{WORKSPACE}{}", encoded(path))
}

/// The name of what `segments` lead to below the skills.
pub(super) fn of_skill<'a>(segments: impl IntoIterator<Item = &'a str>) -> String {
    let segments: Vec<String> = segments.into_iter().map(encoded).collect();
    format!("{SKILL}{}", segments.join("/"))
}

/// The segments of the path in the workspace that `uri` names, encoded or not; nothing for what can be no path there. The workspace
/// itself has none.
pub(super) fn workspace(uri: &str) -> Option<Vec<String>> {
    if matches!(uri, "workspace:" | "workspace://" | WORKSPACE) {
        return Some(Vec::new());
    }
    segments(uri.strip_prefix(WORKSPACE)?)
}

/// The segments of the name of a skill's file or directory; nothing for what can be none. There is at least one.
pub(super) fn skill(uri: &str) -> Option<Vec<String>> {
    segments(uri.strip_prefix(SKILL)?)
}

fn segments(path: &str) -> Option<Vec<String>> {
    let decoded = |segment| {
        let segment = percent_decode_str(segment).decode_utf8().ok()?;
        let is_name = !matches!(&*segment, "" | "." | "..") && !segment.contains(['/', '\0']);
        is_name.then(|| segment.into_owned())
    };
    path.split('/').map(decoded).collect()
}

/// The path in the workspace that segments lead to.
pub(super) fn in_workspace(segments: &[String]) -> Option<SandboxPath> {
    segments.iter().try_fold(SandboxPath::workspace(), |path, segment| path.join(segment).ok())
}

/// The path in the skill `id` that segments lead to.
pub(super) fn in_skill(id: &SkillId, segments: &[String]) -> Option<SandboxPath> {
    let root = SandboxPath::workspace().join(SKILLS).ok()?.join(id.as_str()).ok()?;
    segments.iter().try_fold(root, |path, segment| path.join(segment).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(uri: &str) -> Option<SandboxPath> {
        workspace(uri).filter(|segments| !segments.is_empty()).and_then(|segments| in_workspace(&segments))
    }

    #[test]
    fn a_name_leads_back_to_its_path_and_need_not_be_encoded() {
        for relative in ["a", "a/b.md", "目录/你好 \"x\" %2F.txt", "a?b#c", ".x/~", "%", "a:b@c"] {
            let uri = of(relative);
            assert!(uri.is_ascii() && !uri.contains([' ', '?', '#', '"']), "{uri}");
            assert_eq!(path(&uri).unwrap().as_str(), format!("/workspace/{relative}"));
        }
        assert_eq!(path("workspace:///目录/a b?#").unwrap().as_str(), "/workspace/目录/a b?#");
        assert_eq!(of("目/a"), "workspace:///%E7%9B%AE/a");
        let uri = of_skill(["数 据", "a/b"]);
        assert_eq!(uri, "skill://%E6%95%B0%20%E6%8D%AE/a/b");
        assert_eq!(skill(&uri).unwrap(), ["数 据", "a", "b"]);
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
        for uri in [
            "skill://",
            "skill:///a",
            "skill://../x",
            "skill://a/%2e%2E/b",
            "skill://a%2Fb",
            "skill://a/",
            "skill:a",
        ] {
            assert_eq!(skill(uri), None, "{uri}");
        }
    }
}
