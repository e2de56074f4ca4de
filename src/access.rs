//! Who may do what: tokens, roles and the one function that decides.

use policy::{AgentId, UserId};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a caller may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// The baseline of one agent, and reading what its users see.
    Manager(AgentId),
    /// Any user's overlays and workspaces, no baseline.
    Engine,
    /// One user's overlays and workspaces.
    User(UserId),
}

/// A token, known by its digest only.
#[derive(Clone, Debug)]
pub struct Token {
    digest: [u8; 32],
    role: Role,
}

impl Token {
    /// The token `text`.
    #[must_use]
    pub fn from_text(text: &str, role: Role) -> Self {
        Self { digest: Sha256::digest(text.as_bytes()).into(), role }
    }

    /// A token by its SHA-256, as 64 hexadecimal digits; `None` when it is none.
    #[must_use]
    pub fn from_digest(digits: &str, role: Role) -> Option<Self> {
        let mut digest = [0; 32];
        if digits.len() != 64 || !digits.is_ascii() {
            return None;
        }
        for (index, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        Some(Self { digest, role })
    }
}

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// See a user's skills or workspace.
    Read(&'a UserId, &'a AgentId),
    /// Change a user's overlay or workspace, or run something there.
    Change(&'a UserId, &'a AgentId),
    /// Change an agent's baseline.
    Baseline(&'a AgentId),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No token, or one that nobody gave out.
    Unauthenticated,
    /// The caller may know that the thing exists, but not do this to it.
    Denied,
    /// The caller may not know that it exists.
    Hidden,
}

/// The tokens of a service.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<Token>,
}

impl Access {
    /// Knows `tokens`; without any, every caller is an admin.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self { tokens }
    }

    /// Tells whether callers need a token.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Finds the role of the caller who sent `token`.
    ///
    /// # Errors
    /// [`Refused::Unauthenticated`].
    pub fn role(&self, token: Option<&str>) -> Result<Role, Refused> {
        if self.tokens.is_empty() {
            return Ok(Role::Admin);
        }
        let digest: [u8; 32] = Sha256::digest(token.ok_or(Refused::Unauthenticated)?.as_bytes()).into();
        // Every token is compared, and each in constant time: the time taken tells nothing.
        let found = self.tokens.iter().fold(None, |found, token| {
            if bool::from(token.digest.ct_eq(&digest)) { Some(&token.role) } else { found }
        });
        found.cloned().ok_or(Refused::Unauthenticated)
    }
}

impl Role {
    /// Decides whether this role may do `action`.
    ///
    /// # Errors
    /// [`Refused::Denied`], [`Refused::Hidden`].
    pub fn may(&self, action: Action<'_>) -> Result<(), Refused> {
        match (self, action) {
            (Self::Admin, _) | (Self::Engine, Action::Read(..) | Action::Change(..)) => Ok(()),
            (Self::User(user), Action::Read(owner, _) | Action::Change(owner, _)) => {
                if user == owner {
                    Ok(())
                } else {
                    Err(Refused::Hidden)
                }
            }
            (Self::Manager(agent), Action::Read(_, other) | Action::Baseline(other)) => {
                if agent == other {
                    Ok(())
                } else {
                    Err(Refused::Hidden)
                }
            }
            (Self::Engine | Self::User(_), Action::Baseline(_)) | (Self::Manager(_), Action::Change(..)) => {
                Err(Refused::Denied)
            }
        }
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
            Action::Read(&other, &foreign),
            Action::Change(&user, &agent),
            Action::Change(&other, &agent),
            Action::Baseline(&agent),
            Action::Baseline(&foreign),
        ];
        let (yes, denied, hidden) = (Ok(()), Err(Refused::Denied), Err(Refused::Hidden));
        for (role, expected) in [
            (Role::Admin, [yes; 6]),
            (Role::Engine, [yes, yes, yes, yes, denied, denied]),
            (Role::User(user.clone()), [yes, hidden, yes, hidden, denied, denied]),
            (Role::Manager(agent.clone()), [yes, hidden, denied, denied, yes, hidden]),
        ] {
            assert_eq!(actions.map(|action| role.may(action)), expected, "{role:?}");
        }
    }

    #[test]
    fn without_tokens_everybody_is_admin_and_with_one_nobody_else_is() {
        assert_eq!(Access::default().role(None), Ok(Role::Admin));
        let access = Access::new(vec![Token::from_text("秘密", Role::Engine)]);
        assert_eq!(access.role(Some("秘密")), Ok(Role::Engine));
        assert_eq!(access.role(Some("秘")), Err(Refused::Unauthenticated));
        assert_eq!(access.role(None), Err(Refused::Unauthenticated));
    }
}
