//! [`Handler`]: the methods of the protocol, for one message.

use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::Mcp;
use super::held::Held;
use super::refusal;
use super::target::Target;

/// How long clients may keep the list of tools, in milliseconds. It changes with the configuration and the role.
const TOOLS_KEPT_MS: u64 = 3_600_000;
/// The methods that there are. The SDK takes one whose parameters it cannot read for a method of ours.
const METHODS: [&str; 5] =
    ["tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read"];

/// What answers one message.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) mcp: Arc<Mcp>,
    pub(super) target: Arc<Target>,
    pub(super) held: Held,
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
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
            .with_server_info(Implementation::new("filesecbox", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
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
        Ok(ListResourceTemplatesResult::with_all_items(vec![Self::template()])
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
