//! [`Role`] and the one function that decides what it may do.

use policy::{AgentId, UserId};

/// The role of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// The baseline of one agent, and reading what its users see.
    Manager(AgentId),
    /// Any user's overlays and workspaces, no baseline; issues tokens for users.
    Engine,
    /// One user's overlays and workspaces.
    User {
        /// The user.
        user: UserId,
        /// With this agent only, when there is one.
        agent: Option<AgentId>,
    },
    /// Figures about the service, and nothing that belongs to a user.
    Monitor,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// See a user's skills or workspace.
    Read(&'a UserId, &'a AgentId),
    /// Change a user's overlay or workspace, or run something there.
    Change(&'a UserId, &'a AgentId),
    /// Change an agent's baseline, asked for among the skills of a user.
    Baseline(&'a UserId, &'a AgentId),
    /// See an agent's baseline, for no user.
    ReadBaseline(&'a AgentId),
    /// Change an agent's baseline, for no user.
    ChangeBaseline(&'a AgentId),
    /// See or remove the workspaces of a user with all agents.
    OfUser(&'a UserId),
    /// See which workspaces there are, of all users.
    SeeAll,
    /// Remove the workspaces of all users.
    RemoveAll,
    /// Issue a token for some user.
    Issue,
    /// Read figures about the service.
    Observe,
    /// Have the registry made anew.
    Rebuild,
    /// Read what all callers have changed.
    Audit,
    /// See or set what holds for the runs and trees of an agent.
    Govern,
    /// Put and read packages, and have them deployed.
    Packages,
    /// Have devboxes: workspaces of the dialect's agent, of any name.
    Devboxes,
}

/// Which part of a list about all users and agents a role sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach<'a> {
    /// Of this agent only, when there is one.
    pub agent: Option<&'a AgentId>,
    /// Of this user only, when there is one, besides what is for all users of an agent that the role knows.
    pub only_of: Option<&'a UserId>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No token, or one that is not valid or has expired.
    Unauthenticated,
    /// The caller may know that the thing exists, but not do this to it.
    Denied,
    /// The caller may not know that it exists.
    Hidden,
}

impl Role {
    /// The word that configuration, logs and the audit log have for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Manager(_) => "manager",
            Self::Engine => "engine",
            Self::User { .. } => "user",
            Self::Monitor => "monitor",
        }
    }

    /// Decides whether this role may do `action`.
    ///
    /// # Errors
    /// [`Refused::Denied`], [`Refused::Hidden`].
    pub fn may(&self, action: Action<'_>) -> Result<(), Refused> {
        let unless_hidden = |is_own: bool| if is_own { Ok(()) } else { Err(Refused::Hidden) };
        match (self, action) {
            (Self::Admin, _)
            | (
                Self::Engine,
                Action::Read(..)
                | Action::Change(..)
                | Action::ReadBaseline(_)
                | Action::OfUser(_)
                | Action::SeeAll
                | Action::Issue
                | Action::Packages
                | Action::Devboxes,
            )
            | (Self::Monitor, Action::Observe) => Ok(()),
            (Self::Manager(agent), Action::ReadBaseline(other) | Action::ChangeBaseline(other)) => {
                unless_hidden(agent == other)
            }
            // A user knows of skills of all users only as the user's own.
            (Self::User { .. }, Action::ReadBaseline(_) | Action::ChangeBaseline(_)) => Err(Refused::Hidden),
            (Self::User { user, agent }, Action::Read(owner, with) | Action::Change(owner, with)) => {
                unless_hidden(user == owner && agent.as_ref().is_none_or(|agent| agent == with))
            }
            // A token for one agent does not show what the user has with other agents.
            (Self::User { user, agent }, Action::OfUser(owner)) => {
                unless_hidden(user == owner)?;
                if agent.is_some() { Err(Refused::Denied) } else { Ok(()) }
            }
            // A caller that may not know of the user and the agent in the path may not change the baseline through it.
            (Self::User { user, agent }, Action::Baseline(owner, with)) => {
                unless_hidden(user == owner && agent.as_ref().is_none_or(|agent| agent == with))?;
                Err(Refused::Denied)
            }
            (Self::Manager(agent), Action::Read(_, other) | Action::Baseline(_, other)) => {
                unless_hidden(agent == other)
            }
            (Self::Manager(agent), Action::Change(_, other)) => {
                unless_hidden(agent == other)?;
                Err(Refused::Denied)
            }
            (
                Self::Engine,
                Action::Baseline(..)
                | Action::ChangeBaseline(_)
                | Action::RemoveAll
                | Action::Observe
                | Action::Rebuild
                | Action::Audit
                | Action::Govern,
            )
            | (
                Self::User { .. },
                Action::SeeAll
                | Action::RemoveAll
                | Action::Issue
                | Action::Observe
                | Action::Rebuild
                | Action::Audit
                | Action::Govern
                | Action::Packages
                | Action::Devboxes,
            )
            | (
                Self::Manager(_),
                Action::OfUser(_)
                | Action::SeeAll
                | Action::RemoveAll
                | Action::Issue
                | Action::Observe
                | Action::Rebuild
                | Action::Audit
                | Action::Govern
                | Action::Packages
                | Action::Devboxes,
            )
            | (
                Self::Monitor,
                Action::Read(..)
                | Action::Change(..)
                | Action::Baseline(..)
                | Action::ReadBaseline(_)
                | Action::ChangeBaseline(_)
                | Action::OfUser(_)
                | Action::SeeAll
                | Action::RemoveAll
                | Action::Issue
                | Action::Rebuild
                | Action::Audit
                | Action::Govern
                | Action::Packages
                | Action::Devboxes,
            ) => Err(Refused::Denied),
        }
    }

    /// Decides which part this role sees of a list about all users and agents, of which it asks for those of `agent` and
    /// of `user`, when given.
    ///
    /// # Errors
    /// [`Refused::Denied`]; [`Refused::Hidden`] for another's user or agent.
    pub fn reach<'a>(
        &'a self,
        agent: Option<&'a AgentId>,
        user: Option<&UserId>,
    ) -> Result<Reach<'a>, Refused> {
        let (own_agent, own_user) = match self {
            Self::Admin | Self::Engine => (None, None),
            Self::Manager(agent) => (Some(agent), None),
            Self::User { user, agent } => (agent.as_ref(), Some(user)),
            Self::Monitor => return Err(Refused::Denied),
        };
        let is_foreign = own_agent.zip(agent).is_some_and(|(own, asked)| own != asked)
            || own_user.zip(user).is_some_and(|(own, asked)| own != asked);
        if is_foreign {
            return Err(Refused::Hidden);
        }
        Ok(Reach { agent: own_agent.or(agent), only_of: own_user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_gets_exactly_what_its_row_says() {
        let (user, other) = (UserId::parse("u").unwrap(), UserId::parse("v").unwrap());
        let (agent, foreign) = (AgentId::parse("a").unwrap(), AgentId::parse("b").unwrap());
        let actions = [
            Action::Read(&user, &agent),
            Action::Read(&user, &foreign),
            Action::Read(&other, &foreign),
            Action::Change(&user, &agent),
            Action::Change(&user, &foreign),
            Action::Change(&other, &agent),
            Action::Baseline(&user, &agent),
            Action::Baseline(&user, &foreign),
            Action::Baseline(&other, &agent),
            Action::OfUser(&user),
            Action::OfUser(&other),
            Action::SeeAll,
            Action::RemoveAll,
            Action::Issue,
            Action::Observe,
            Action::Rebuild,
            Action::Audit,
            Action::Govern,
            Action::Devboxes,
            Action::ReadBaseline(&agent),
            Action::ReadBaseline(&foreign),
            Action::ChangeBaseline(&agent),
            Action::ChangeBaseline(&foreign),
        ];
        let (yes, denied, hidden) = (Ok(()), Err(Refused::Denied), Err(Refused::Hidden));
        let bound = Role::User { user: user.clone(), agent: Some(agent.clone()) };
        let free = Role::User { user: user.clone(), agent: None };
        for (role, expected) in [
            (Role::Admin, [yes; 23]),
            (
                Role::Engine,
                [
                    yes, yes, yes, yes, yes, yes, denied, denied, denied, yes, yes, yes, denied, yes, denied,
                    denied, denied, denied, yes, yes, yes, denied, denied,
                ],
            ),
            (
                free,
                [
                    yes, yes, hidden, yes, yes, hidden, denied, denied, hidden, yes, hidden, denied, denied,
                    denied, denied, denied, denied, denied, denied, hidden, hidden, hidden, hidden,
                ],
            ),
            (
                bound,
                [
                    yes, hidden, hidden, yes, hidden, hidden, denied, hidden, hidden, denied, hidden, denied,
                    denied, denied, denied, denied, denied, denied, denied, hidden, hidden, hidden, hidden,
                ],
            ),
            (
                Role::Manager(agent.clone()),
                [
                    yes, hidden, hidden, denied, hidden, denied, yes, hidden, yes, denied, denied, denied,
                    denied, denied, denied, denied, denied, denied, denied, yes, hidden, yes, hidden,
                ],
            ),
            (
                Role::Monitor,
                [
                    denied, denied, denied, denied, denied, denied, denied, denied, denied, denied, denied,
                    denied, denied, denied, yes, denied, denied, denied, denied, denied, denied, denied,
                    denied,
                ],
            ),
        ] {
            assert_eq!(actions.map(|action| role.may(action)), expected, "{role:?}");
        }
    }

    #[test]
    fn nobody_reaches_a_list_of_anothers_users_or_agents() {
        let (user, other) = (UserId::parse("u").unwrap(), UserId::parse("v").unwrap());
        let (agent, foreign) = (AgentId::parse("a").unwrap(), AgentId::parse("b").unwrap());
        let reach = |agent, only_of| Ok(Reach { agent, only_of });
        let hidden = Err(Refused::Hidden);
        for role in [Role::Admin, Role::Engine] {
            assert_eq!(role.reach(None, None), reach(None, None));
            assert_eq!(role.reach(Some(&foreign), Some(&other)), reach(Some(&foreign), None));
        }
        let manager = Role::Manager(agent.clone());
        assert_eq!(manager.reach(None, Some(&other)), reach(Some(&agent), None));
        assert_eq!(manager.reach(Some(&foreign), None), hidden);
        let free = Role::User { user: user.clone(), agent: None };
        assert_eq!(free.reach(None, Some(&user)), reach(None, Some(&user)));
        assert_eq!(free.reach(Some(&foreign), None), reach(Some(&foreign), Some(&user)));
        assert_eq!(free.reach(None, Some(&other)), hidden);
        let bound = Role::User { user: user.clone(), agent: Some(agent.clone()) };
        assert_eq!(bound.reach(None, None), reach(Some(&agent), Some(&user)));
        assert_eq!(bound.reach(Some(&foreign), None), hidden);
        assert_eq!(Role::Monitor.reach(None, None), Err(Refused::Denied));
    }
}
