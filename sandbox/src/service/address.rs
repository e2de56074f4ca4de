//! [`Address`]: a path of the sandbox as routes of the service.

use policy::{AgentId, UserId};

use crate::{Result, SandboxPath, TreePath};

/// A tree of the service and a path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The beginning of the tree's routes, such as `/v1/sandbox/alice/demo`.
    pub(super) tree: String,
    /// The path in the tree; empty for the tree itself.
    pub(super) path: String,
}

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Something in a tree.
    InTree(Address),
    /// The directory of all skills, which is no tree; the routes of the list.
    Skills(String),
}

impl Place {
    /// Finds the place of `path`. With `skills`, those of the user are at `/workspace/skills/<id>`.
    pub(super) fn of(
        user: &UserId,
        agent: &AgentId,
        skills: bool,
        operation: &'static str,
        path: &SandboxPath,
    ) -> Result<Self> {
        let (user, agent) = (encoded(user.as_str()), encoded(agent.as_str()));
        let in_tree = |tree: String, below: &str| Self::InTree(Address { tree, path: below.to_owned() });
        Ok(match TreePath::of(path, skills, operation)? {
            TreePath::Workspace(below) => in_tree(format!("/v1/sandbox/{user}/{agent}"), below),
            TreePath::Skills => Self::Skills(format!("/v1/skills/{user}/{agent}")),
            TreePath::Skill(skill, below) => {
                in_tree(format!("/v1/skills/{user}/{agent}/{}", encoded(skill.as_str())), below)
            }
        })
    }
}

impl Address {
    /// The route of the file's bytes.
    pub(super) fn raw(&self) -> String {
        let segments: Vec<String> = self.path.split('/').map(encoded).collect();
        format!("{}/raw/{}", self.tree, segments.join("/"))
    }

    /// A route with the path as a parameter, which the tree itself has none of.
    pub(super) fn with_path(&self, route: &str) -> String {
        if self.path.is_empty() {
            format!("{}/{route}", self.tree)
        } else {
            format!("{}/{route}?path={}", self.tree, encoded(&self.path))
        }
    }
}

/// Percent-encodes all but the characters that mean themselves everywhere (RFC 3986, section 2.3).
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, RESERVED).to_string()
}

const RESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn place(skills: bool, path: &str) -> Result<Place> {
        let (user, agent) = (UserId::parse("爱丽").unwrap(), AgentId::parse("demo").unwrap());
        Place::of(&user, &agent, skills, "stat", &path.parse().unwrap())
    }

    fn address(place: Place) -> Address {
        match place {
            Place::InTree(address) => address,
            Place::Skills(_) => panic!("the directory of skills"),
        }
    }

    #[test]
    fn paths_of_the_workspace_are_percent_encoded() {
        let address = address(place(true, "/workspace/a b/50%?.txt").unwrap());
        assert_eq!(address.raw(), "/v1/sandbox/%E7%88%B1%E4%B8%BD/demo/raw/a%20b/50%25%3F.txt");
        assert_eq!(
            address.with_path("stat"),
            "/v1/sandbox/%E7%88%B1%E4%B8%BD/demo/stat?path=a%20b%2F50%25%3F.txt"
        );
    }

    #[test]
    fn skills_are_trees_where_they_are_wanted() {
        let skill = address(place(true, "/workspace/skills/数据/SKILL.md").unwrap());
        assert_eq!(skill.tree, "/v1/skills/%E7%88%B1%E4%B8%BD/demo/%E6%95%B0%E6%8D%AE");
        assert_eq!(skill.path, "SKILL.md");
        let same = address(place(false, "/workspace/skills/数据/SKILL.md").unwrap());
        assert_eq!(same.path, "skills/数据/SKILL.md");
        assert_eq!(address(place(true, "/workspace/skillset").unwrap()).path, "skillset");
        assert!(matches!(place(true, "/workspace/skills").unwrap(), Place::Skills(_)));
        assert_eq!(place(true, "/workspace/skills/.hidden").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_outside_has_no_route() {
        for path in ["/", "/workspace-evil/x", "/etc/passwd"] {
            assert_eq!(place(true, path).unwrap_err().kind(), ErrorKind::PermissionDenied, "{path}");
        }
    }
}
