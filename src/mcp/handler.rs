//! [`Handler`]: the methods of the protocol, for one message.

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode,
    GetSkillRequestParams, GetSkillResult, Implementation, InitializeRequestParams, InitializeResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceDirectoryRequestParams, ReadResourceDirectoryResult,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::Mcp;
use super::held::Held;
use super::refusal;
use super::subscription::{METHOD as LISTEN, Subscription};
use super::target::Target;

/// How long clients may keep the list of tools, in milliseconds. It changes with the configuration and the role.
const TOOLS_KEPT_MS: u64 = 3_600_000;
/// The methods that there are. The SDK takes one whose parameters it cannot read for a method of ours.
const METHODS: [&str; 10] = [
    "tools/list",
    "tools/call",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/directory/read",
    "skills/list",
    "skills/get",
    LISTEN,
];

/// What answers one message: the methods of the protocol, about one workspace.
#[derive(Clone)]
pub struct Handler {
    pub(super) mcp: Arc<Mcp>,
    pub(super) target: Arc<Target>,
    pub(super) held: Held,
    /// What a message that begins a subscription listens to.
    pub(super) subscription: Arc<Mutex<Option<Result<Subscription, ErrorData>>>>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let may_change = if self.target.may_change { "" } else { " It can be read only." };
        let instructions = format!(
            "The workspace of user `{}` with agent `{}`: paths of tools are relative to it or begin with `/workspace`, and \
             commands find it in `$WORKSPACE`. Skills are in `skills`, which a search of the whole workspace leaves out. Nothing lasts between calls but files: send `directory` \
             to begin elsewhere than in the workspace.{may_change}",
            self.target.user, self.target.agent
        );
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            // There are none; clients that ask for them get an empty list.
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_skills_with_directory_read();
        ServerConfig::new(capabilities.build())
            .with_server_info(Implementation::new("filesecbox", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut begun = self.negotiate_initialize(&request)?;
        // Without a session nothing could be told to a client of an older revision.
        if let Some(resources) = &mut begun.capabilities.resources {
            (resources.subscribe, resources.list_changed) = (None, None);
        }
        Ok(begun)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(refusal::invalid("there are no prompts: send no cursor"));
        }
        Ok(ListPromptsResult::with_all_items(Vec::new())
            .with_ttl_ms(TOOLS_KEPT_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(refusal::invalid("the list of tools has one page: send no cursor"));
        }
        let tools = self.mcp.tools(&self.target);
        Ok(ListToolsResult::with_all_items(tools)
            .with_ttl_ms(TOOLS_KEPT_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await.map(Into::into)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.attend(&context.ct, self.resources(cursor)).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(refusal::invalid("the list of templates has one page: send no cursor"));
        }
        Ok(ListResourceTemplatesResult::with_all_items(Self::templates())
            .with_ttl_ms(TOOLS_KEPT_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = self.attend(&context.ct, self.resource(request.uri)).await?;
        Ok(read.into())
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        self.attend(&context.ct, self.skills(cursor)).await
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.attend(&context.ct, self.skill(request.uri)).await
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.attend(&context.ct, self.directory(request.uri, request.cursor)).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(self.accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.tell_changes(context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if METHODS.contains(&request.method.as_str()) {
            return Err(refusal::invalid("the parameters are not as the method takes them"));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None))
    }
}
