//! The tools of an agent over a workspace elsewhere.

use agent::tools::Search;
use sandbox::UserId;

use super::{in_memory, on_the_host};
use crate::play::play;
use crate::server::Server;

/// Plays the conversation as a user whose workspace is elsewhere.
fn transcript(server: &Server, user: &str, agent: &str, search: Search, has_commands: bool) {
    let (sandbox, user) = (server.connected(agent), UserId::parse(user).unwrap());
    println!("{:?}", server.runtime.block_on(play(&sandbox, &user, search, has_commands)));
}

pub(super) fn the_tools_answer_as_in_memory_through_the_routes(server: &Server) {
    in_memory(server, "tooled");
    transcript(server, "tooled", "memory", Search::Files, false);
}

pub(super) fn the_tools_answer_as_on_the_host_through_the_routes(server: &Server) {
    for (user, search) in [("by-files", Search::Files), ("by-programs", Search::Programs)] {
        on_the_host(server, user);
        transcript(server, user, "host", search, true);
    }
}
