//! Subscriptions: what becomes of files is told to a client that listens, from the events of their trees.

use std::collections::BTreeSet;

use policy::{SkillId, TreeId};
use rmcp::ErrorData;
use rmcp::model::SubscriptionFilter;
use rmcp::service::SubscriptionContext;
use serde::Deserialize;

use super::handler::Handler;
use super::subscription::{Subscribed, Subscription};
use super::{refusal, uri};

/// URIs of one subscription.
const URIS_MAX: usize = 256;
/// Skills that one subscription is about. Each takes a place among the listeners of the user, as the workspace does.
const SKILLS_MAX: usize = 4;

/// A message that begins a subscription.
#[derive(Deserialize)]
struct Message {
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    notifications: SubscriptionFilter,
}

impl Handler {
    /// The part of a subscription that is accepted: as many URIs of ours as there may be, and changes of the list.
    pub(super) fn accepted(&self, requested: &SubscriptionFilter) -> SubscriptionFilter {
        let mut skills = BTreeSet::new();
        let mut is_ours = |uri: &String| {
            let base = uri.strip_suffix('/').unwrap_or(uri);
            if uri::workspace(base).is_some() {
                return true;
            }
            let id = uri::skill(base).and_then(|segments| SkillId::parse(segments.first()?).ok());
            let Some(id) = id else { return false };
            if !skills.contains(id.as_str()) && skills.len() == SKILLS_MAX {
                return false;
            }
            skills.insert(id.as_str().to_owned());
            true
        };
        let mut accepted = SubscriptionFilter::new();
        let uris = requested.resource_subscriptions.iter().flatten();
        let uris: Vec<String> = uris.filter(|uri| is_ours(uri)).take(URIS_MAX).cloned().collect();
        accepted.resource_subscriptions = (!uris.is_empty()).then_some(uris);
        accepted.resources_list_changed = requested.resources_list_changed.filter(|wanted| *wanted);
        accepted
    }

    /// Begins to listen for a message that asks for it. The SDK acknowledges a subscription before it calls
    /// [`tell_changes`](Self::tell_changes): what is changed after the acknowledgement must be heard.
    pub(super) async fn begin_to_listen(&self, message: &[u8]) {
        let Ok(Message { params }) = serde_json::from_slice::<Message>(message) else { return };
        let accepted = self.accepted(&params.notifications);
        let is_list_wanted = accepted.resources_list_changed == Some(true);
        let uris = accepted.resource_subscriptions.unwrap_or_default();
        let subscription = self.subscription(uris, is_list_wanted).await;
        *self.subscription.lock() = Some(subscription);
    }

    /// Tells the changes that `context` asks for, until its client leaves or the service stops.
    pub(super) async fn tell_changes(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let is_list_wanted = context.accepted().resources_list_changed == Some(true);
        // A message that was begun has one.
        let begun = self.subscription.lock().take();
        let mut subscription =
            begun.unwrap_or_else(|| Err(refusal::invalid("the header `Mcp-Method` is missing")))?;
        tokio::select! {
            biased;
            () = context.cancelled() => Ok(()),
            () = self.mcp.service.stopped() => Ok(()),
            told = subscription.tell(&context, is_list_wanted) => told,
        }
    }

    /// Listens to the trees that `uris` lie in.
    async fn subscription(&self, uris: Vec<String>, is_list_wanted: bool) -> Result<Subscription, ErrorData> {
        let mut trees = Vec::new();
        if is_list_wanted {
            trees.push(TreeId::Workspace(self.target.user.clone(), self.target.agent.clone()));
        }
        let mut subscribed = Vec::new();
        for uri in uris {
            let base = uri.strip_suffix('/').unwrap_or(&uri);
            let (id, path) = match uri::workspace(base) {
                Some(segments) => (
                    TreeId::Workspace(self.target.user.clone(), self.target.agent.clone()),
                    segments.join("/"),
                ),
                None => {
                    let segments = uri::skill(base).unwrap_or_default();
                    let found = self.skill_path(&segments).await?;
                    let (id, path) = found.ok_or_else(|| refusal::no_resource(&uri))?;
                    (self.skill_tree(&id), path.join("/"))
                }
            };
            let known = trees.iter().position(|tree| *tree == id);
            let tree = known.unwrap_or(trees.len());
            if known.is_none() {
                trees.push(id);
            }
            let is_whole = uri.ends_with('/');
            subscribed.push(Subscribed { uri, tree, path, is_whole });
        }
        let mut listeners = Vec::new();
        for tree in trees {
            let listener = self.mcp.service.listen(tree, None).await;
            listeners.push(listener.map_err(|error| refusal::of(&error))?);
        }
        Ok(Subscription { listeners, uris: subscribed })
    }
}
