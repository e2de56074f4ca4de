//! [`Handler`]: the methods of the protocol, for one message.

use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::Mcp;
use super::refusal;
use super::target::Target;

/// How long clients may keep the list of tools, in milliseconds. It changes with the configuration and the role.
const TOOLS_KEPT_MS: u64 = 3_600_000;
/// The methods that there are. The SDK takes one whose parameters it cannot read for a method of ours.
const METHODS: [&str; 5] = ["initialize", "server/discover", "ping", "tools/list", "tools/call"];

/// What answers one message.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) mcp: Arc<Mcp>,
    pub(super) target: Arc<Target>,
}

impl Handler {
    pub(super) fn new(mcp: Arc<Mcp>, target: Arc<Target>) -> Self {
        Self { mcp, target }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let may_change = if self.target.may_change { "" } else { " It can be read only." };
        let instructions = format!(
            "The workspace of user `{}` with agent `{}`: paths of tools are relative to it or begin with `/workspace`, and \
             commands find it in `$WORKSPACE`. Skills are in `skills`. Nothing lasts between calls but files: send `directory` \
             to begin elsewhere than in the workspace.{may_change}",
            self.target.user, self.target.agent
        );
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
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
