//! [`Fixture`]: the methods of the service's own handler, and what the suite's own server has.

use std::time::Duration;

use filesecbox::mcp::Handler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams,
    GetSkillResult, InitializeRequestParams, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rounds;

/// A picture of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// A sound of no samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
/// What the URIs of its resources begin with.
const OWN: &str = "test://";
/// A tool whose argument stands in a head of the request as well.
const WITH_HEAD: &str = "test_custom_head";
/// Between two steps of a tool that tells how far it is.
const STEP: Duration = Duration::from_millis(50);

/// A handler with more than the service has.
#[derive(Clone)]
pub(crate) struct Fixture(pub(crate) Handler);

/// Reads what a test writes as the protocol has it.
pub(crate) fn made<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A whole result: the SDK leaves its type out for clients of the older revision.
pub(crate) fn complete<T: DeserializeOwned>(mut result: Value) -> T {
    result["resultType"] = "complete".into();
    made(result)
}

fn invalid(message: &'static str) -> ErrorData {
    ErrorData::invalid_params(message, None)
}

/// The tools with their schemas.
fn tools() -> Vec<Tool> {
    let plain = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_tool_with_progress",
        "test_missing_capability",
        "test_streaming_elicitation",
        "test_logging_tool",
    ];
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": "Of the suite.", "inputSchema": schema });
    let names = plain.into_iter().chain(rounds::TOOLS);
    let mut tools: Vec<Value> = names.map(|name| tool(name, json!({ "type": "object" }))).collect();
    tools.push(tool(
        WITH_HEAD,
        json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
            "required": ["region"],
        }),
    ));
    tools.push(tool("json_schema_2020_12_tool", json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": { "$anchor": "address", "type": "object", "properties": { "city": { "type": "string" } } } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "allOf": [{ "anyOf": [{ "required": ["name"] }, { "required": ["address"] }] }],
        "if": { "required": ["name"] },
        "then": { "properties": { "name": { "minLength": 1 } } },
        "else": { "required": ["address"] },
        "additionalProperties": false,
    })));
    made(Value::Array(tools))
}

/// What a tool without rounds answers.
fn said(name: &str) -> Option<CallToolResult> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let content = match name {
        "test_simple_text" => vec![text("This is a simple text response for testing.")],
        "test_image_content" => vec![image],
        "test_audio_content" => vec![json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })],
        "test_embedded_resource" => {
            vec![resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
        }
        "test_multiple_content_types" => vec![
            text("Multiple content types test:"),
            image,
            resource(
                "test://mixed-content-resource",
                "application/json",
                "{\"test\":\"data\",\"value\":123}",
            ),
        ],
        "test_error_handling" => {
            let content = [text("This tool intentionally returns an error for testing")];
            return Some(complete(json!({ "content": content, "isError": true })));
        }
        "test_tool_with_progress" | "test_logging_tool" | "json_schema_2020_12_tool" | WITH_HEAD => {
            vec![text("done")]
        }
        _ => return None,
    };
    Some(complete(json!({ "content": content })))
}

/// A resource of the suite.
fn resource(uri: &str) -> Option<ReadResourceResult> {
    let mut content = match uri {
        "test://static-text" => {
            json!({ "mimeType": "text/plain", "text": "This is the content of the static text resource." })
        }
        "test://static-binary" => json!({ "mimeType": "image/png", "blob": PNG }),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "mimeType": "application/json", "text": data.to_string() })
        }
    };
    content["uri"] = uri.into();
    Some(complete(json!({ "contents": [content], "ttlMs": 0, "cacheScope": "private" })))
}

/// The messages of a prompt.
fn messages(name: &str, arguments: &Value) -> Option<Value> {
    let user = |content: Value| json!({ "role": "user", "content": content });
    let text = |text: &str| user(json!({ "type": "text", "text": text }));
    let given = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    Some(match name {
        "test_simple_prompt" => json!([text("This is a simple prompt for testing.")]),
        "test_prompt_with_arguments" => {
            let (first, second) = (given("arg1"), given("arg2"));
            json!([text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": given("resourceUri"), "mimeType": "text/plain", "text": "Embedded resource content for testing.",
            });
            let embedded = user(json!({ "type": "resource", "resource": resource }));
            json!([embedded, text("Please process the embedded resource above.")])
        }
        "test_prompt_with_image" => {
            let image = user(json!({ "type": "image", "data": PNG, "mimeType": "image/png" }));
            json!([image, text("Please analyze the image above.")])
        }
        _ => return None,
    })
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.0.get_info();
        info.capabilities.completions = Some(made(json!({})));
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut begun = self.0.initialize(request, context).await?;
        begun.capabilities.completions = Some(made(json!({})));
        Ok(begun)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = self.0.list_tools(request, context).await?;
        list.tools.extend(tools());
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        let has_sampling = context.client_capabilities().is_some_and(|able| able.sampling.is_some());
        if name == "test_missing_capability" {
            let needed = made(json!({ "sampling": {} }));
            return match has_sampling {
                true => Ok(complete::<CallToolResult>(json!({ "content": [] })).into()),
                false => Err(ErrorData::missing_required_client_capability(needed)),
            };
        }
        if name == "test_tool_with_progress" {
            for progress in [0.0, 50.0, 100.0] {
                if let Some(token) = context.meta.get_progress_token() {
                    let told = ProgressNotificationParam::new(token, progress).with_total(100.0);
                    let _ = context.peer.notify_progress(told).await;
                }
                tokio::time::sleep(STEP).await;
            }
        }
        if let Some(result) = said(&name) {
            return Ok(result.into());
        }
        let has_elicitation = context.client_capabilities().is_some_and(|able| able.elicitation.is_some());
        match rounds::call(&request, has_elicitation, has_sampling) {
            Some(answer) => answer,
            None => self.0.call_tool(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut list = self.0.list_prompts(request, context).await?;
        let argument = |name: &str| json!({ "name": name, "required": true });
        list.prompts.extend(made::<Vec<_>>(json!([
            { "name": "test_simple_prompt", "description": "Of the suite." },
            { "name": "test_prompt_with_arguments", "description": "Of the suite.", "arguments": [argument("arg1"), argument("arg2")] },
            { "name": "test_prompt_with_embedded_resource", "description": "Of the suite.", "arguments": [argument("resourceUri")] },
            { "name": "test_prompt_with_image", "description": "Of the suite." },
            { "name": rounds::PROMPT, "description": "Of the suite." },
        ])));
        Ok(list)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == rounds::PROMPT {
            return Ok(rounds::prompt(&request));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let messages =
            messages(&request.name, &arguments).ok_or_else(|| invalid("there is no such prompt"))?;
        Ok(GetPromptResponse::Complete(complete(json!({ "messages": messages }))))
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut list = self.0.list_resources(request, context).await?;
        if list.next_cursor.is_none() {
            list.resources.extend(made::<Vec<_>>(json!([
                { "uri": "test://static-text", "name": "static-text", "mimeType": "text/plain" },
                { "uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png" },
            ])));
        }
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut list = self.0.list_resource_templates(request, context).await?;
        list.resource_templates.push(made(json!({
            "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json",
        })));
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resource(&request.uri) {
            Some(read) if request.uri.starts_with(OWN) => Ok(read.into()),
            _ => self.0.read_resource(request, context).await,
        }
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        self.0.list_skills(request, context).await
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.0.get_skill(request, context).await
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.0.read_resource_directory(request, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.0.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.0.listen(context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.0.on_custom_request(request, context).await
    }
}
