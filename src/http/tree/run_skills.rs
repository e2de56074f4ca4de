//! Which skills a command of a workspace is to see, as requests say it.

use policy::{SkillId, TreeId};
use storage::runs::RUN_SKILLS_MAX;

use crate::http::answer::problem::Problem;
use crate::http::extract::bounded;
use crate::ops::run::Skills;

/// The skills that a run in the tree `id` is to see.
///
/// # Errors
/// `invalid` in a skill, and for what is neither `all` nor a list of ids.
pub(super) fn skills(id: &TreeId, wanted: Option<bounded::Skills>) -> Result<Skills, Problem> {
    if wanted.is_some() && !matches!(id, TreeId::Workspace(..)) {
        return Err(Problem::invalid(
            "`skills` goes with a command in a workspace: one in a skill sees that skill",
        ));
    }
    match wanted {
        None => Ok(Skills::None),
        Some(bounded::Skills::Word(word)) if word == "all" => Ok(Skills::All),
        Some(bounded::Skills::Word(_)) => {
            Err(Problem::invalid("`skills` is a list of skill ids, or \"all\""))
        }
        Some(bounded::Skills::List(list)) => {
            let parsed: Result<Vec<SkillId>, _> = list.iter().map(|text| SkillId::parse(text)).collect();
            Ok(Skills::Named(parsed.map_err(crate::ops::Error::from)?))
        }
    }
}

/// The workspace, for a run in the skill `id`.
///
/// # Errors
/// `invalid` in a workspace.
pub(super) fn workspace(id: &TreeId) -> Result<Skills, Problem> {
    match id {
        TreeId::Skill(..) => Ok(Skills::Workspace),
        TreeId::Workspace(..) => {
            Err(Problem::invalid("`workspace` goes with a command in a skill: one in a workspace sees it"))
        }
    }
}

/// Reads a list as a query can have it. An id with a comma in it goes to `exec`.
pub(super) fn listed(text: String) -> Result<bounded::Skills, Problem> {
    match text.as_str() {
        "" => Ok(bounded::Skills::List(Vec::new())),
        "all" => Ok(bounded::Skills::Word(text)),
        list => {
            let ids: Vec<String> = list.split(',').take(RUN_SKILLS_MAX + 1).map(str::to_owned).collect();
            if ids.len() > RUN_SKILLS_MAX {
                return Err(Problem::invalid(format!(
                    "`skills` has at most {RUN_SKILLS_MAX} ids, or is `all`"
                )));
            }
            Ok(bounded::Skills::List(ids))
        }
    }
}
