//! [`Choice`]: where a session wants to run.

use std::convert::Infallible;
use std::str::FromStr;

/// The choice of a session; a text in its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The first that there is: the user's own machine, a container, this host.
    #[default]
    Usual,
    /// A container, even if the user's own machine is connected.
    Docker,
    /// The user's machine of this name, and no other.
    Runner(String),
}

/// The text that asks for a container: no machine may be called so.
const DOCKER: &str = "__docker__";

impl FromStr for Choice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "" => Self::Usual,
            DOCKER => Self::Docker,
            name => Self::Runner(name.to_owned()),
        })
    }
}
