//! What the routes of a workspace promise when another backend answers for it.

mod files;
mod runs;
mod seam;
mod tools;

use std::sync::Arc;

use libtest_mimic::Trial;
use sandbox::{MemSandbox, NoneOptions, NoneSandbox, Root, Sandbox};
use serde_json::Value;

use crate::client::{Client, Reply};
use crate::server::Server;

pub(crate) type Law = fn(&Server);

pub(crate) fn trials(server: &Arc<Server>) -> Vec<Trial> {
    macro_rules! laws {
        ($($about:ident::$law:ident),* $(,)?) => { [$((stringify!($law), $about::$law as Law)),*] };
    }
    let laws = laws![
        tools::the_tools_answer_as_in_memory_through_the_routes,
        tools::the_tools_answer_as_on_the_host_through_the_routes,
        seam::another_user_beside_it_reaches_the_own_store,
        seam::without_the_backend_the_own_workspace_is_there_again,
        seam::who_may_not_ask_is_told_the_same_as_of_an_own_workspace,
        seam::what_no_backend_can_be_asked_for_is_refused_with_its_name,
        runs::what_a_run_remotely_cannot_promise_is_refused,
        seam::an_unknown_parameter_is_refused,
        seam::nothing_of_it_is_on_the_disk_of_the_service,
        seam::every_change_elsewhere_is_in_the_audit_log,
        files::what_is_not_known_is_left_out,
        files::tags_and_conditions_are_those_of_own_workspaces,
        files::of_changes_with_one_tag_at_once_one_is_made,
        files::changes_of_others_are_not_lost_to_changes_of_texts,
        files::conditions_that_can_be_kept_are_kept_and_others_refused,
        files::ranges_are_those_of_the_file,
        files::pages_are_cut_from_lists,
        files::texts_are_read_and_changed_in_their_encoding,
        files::changes_of_one_text_at_once_are_all_made,
        files::directories_are_made_as_asked_for,
        runs::a_run_is_listed_and_killed_by_its_name,
        runs::the_same_name_is_the_same_run,
        runs::events_tell_all_output_and_can_be_read_again,
        runs::a_command_in_the_background_goes_on,
        runs::a_backend_that_refuses_a_command_is_heard_however_it_was_asked_for,
        runs::arguments_that_name_the_workspace_reach_it,
        seam::who_asks_in_this_process_does_not_mistake_the_own_workspace_for_it,
        seam::a_snapshot_is_not_forked_to_a_workspace_elsewhere,
    ];
    let trial = |(name, law): (&str, Law)| {
        let server = Arc::clone(server);
        Trial::test(format!("elsewhere::{name}"), move || {
            law(&server);
            Ok(())
        })
    };
    laws.into_iter().map(trial).collect()
}

/// A workspace in memory for one law.
fn in_memory(server: &Server, user: &str) -> String {
    let memory: Arc<dyn Sandbox> = Arc::new(MemSandbox::new());
    server.lend(&[user], "memory", &memory);
    format!("/v1/sandbox/{user}/memory")
}

/// A workspace on the host for one law.
fn on_the_host(server: &Server, user: &str) -> String {
    let options = NoneOptions::new(Root::PerUser(server.place("own")));
    let host: Arc<dyn Sandbox> = Arc::new(NoneSandbox::open(options).unwrap());
    server.lend(&[user], "host", &host);
    format!("/v1/sandbox/{user}/host")
}

fn exec(client: &Client, tree: &str, spec: Value) -> Reply {
    client.post_json(format!("{tree}/exec"), &spec)
}
