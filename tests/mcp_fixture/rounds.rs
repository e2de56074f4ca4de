//! The tools and the prompt of the suite that ask their caller for something before they answer: the message is sent again with it.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, GetPromptRequestParams, GetPromptResponse,
    InputRequiredResult, InputResponses,
};
use serde_json::{Value, json};

use crate::fixture::{complete, made};

/// The tools.
pub(crate) const TOOLS: [&str; 8] = [
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];
/// The prompt.
pub(crate) const PROMPT: &str = "test_input_required_result_prompt";
/// With which states are sealed. A server that means it has one of its own for each start.
const KEY: [u8; 32] = [7; 32];

/// A state that only this server can have given out.
fn sealed(state: &str) -> String {
    format!("{state}.{}", blake3::keyed_hash(&KEY, state.as_bytes()).to_hex())
}

/// What a caller sends back: the state that was given out.
fn opened(sent: Option<&str>) -> Result<&str, ErrorData> {
    let state = sent.and_then(|sent| sent.rsplit_once('.')).map(|(state, _)| state);
    state.filter(|state| Some(sealed(state).as_str()) == sent).ok_or_else(|| {
        ErrorData::invalid_params("the state is none that this server gave out: begin again", None)
    })
}

fn elicitation(message: &str, name: &str, kind: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": { "type": "object", "properties": { name: { "type": kind } }, "required": [name] },
    } })
}

fn sampling(question: &str, most: u32) -> Value {
    json!({ "method": "sampling/createMessage", "params": {
        "messages": [{ "role": "user", "content": { "type": "text", "text": question } }],
        "maxTokens": most,
    } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

fn needed(requests: Value, state: Option<&str>) -> InputRequiredResult {
    let requests = made::<rmcp::model::InputRequests>(requests);
    InputRequiredResult::new(Some(requests), state.map(sealed))
}

fn told(text: &str) -> CallToolResponse {
    complete::<CallToolResult>(json!({ "content": [{ "type": "text", "text": text }] })).into()
}

/// The answer to `request`, if it is for a tool of these.
pub(crate) fn call(
    request: &CallToolRequestParams,
    has_elicitation: bool,
    has_sampling: bool,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let sent = request.input_responses.clone().unwrap_or_default();
    let state = || opened(request.request_state.as_deref());
    let name = elicitation("What is your name?", "name", "string");
    let text = |key: &str, path: &str| {
        sent.get(key).and_then(|answer| answer.pointer(path)?.as_str().map(str::to_owned))
    };
    Some(Ok(match request.name.as_ref() {
        "test_input_required_result_elicitation" => match text("user_name", "/content/name") {
            Some(name) => told(&format!("Hello, {name}!")),
            None => needed(json!({ "user_name": name }), None).into(),
        },
        "test_input_required_result_sampling" => match text("capital_question", "/content/text") {
            Some(text) => told(&text),
            None => {
                needed(json!({ "capital_question": sampling("What is the capital of France?", 100) }), None)
                    .into()
            }
        },
        "test_input_required_result_list_roots" => match sent.get("client_roots") {
            Some(answer) => told(&answer["roots"].to_string()),
            None => needed(json!({ "client_roots": roots() }), None).into(),
        },
        "test_input_required_result_request_state" => match sent.contains_key("confirm") {
            true => match state() {
                Ok(_) => told("state-ok"),
                Err(error) => return Some(Err(error)),
            },
            false => {
                let confirm = elicitation("Please confirm", "ok", "boolean");
                needed(json!({ "confirm": confirm }), Some("confirming")).into()
            }
        },
        "test_input_required_result_multiple_inputs" => {
            let has_all = ["user_name", "greeting", "client_roots"].iter().all(|key| sent.contains_key(*key));
            match has_all {
                true => match state() {
                    Ok(_) => told("all were sent"),
                    Err(error) => return Some(Err(error)),
                },
                false => {
                    let greeting = sampling("Generate a greeting", 50);
                    let requests =
                        json!({ "user_name": name, "greeting": greeting, "client_roots": roots() });
                    needed(requests, Some("several")).into()
                }
            }
        }
        "test_input_required_result_multi_round" => {
            return Some(in_rounds(&sent, request.request_state.as_deref()));
        }
        "test_input_required_result_tampered_state" => match request.request_state {
            Some(_) => match state() {
                Ok(_) => told("the state is whole"),
                Err(error) => return Some(Err(error)),
            },
            None => {
                let confirm = elicitation("Please confirm", "ok", "boolean");
                needed(json!({ "confirm": confirm }), Some("sealed")).into()
            }
        },
        "test_input_required_result_capabilities" => {
            let mut requests = json!({});
            if has_elicitation {
                requests["user_name"] = name;
            }
            if has_sampling {
                requests["question"] = sampling("What is the capital of France?", 100);
            }
            match sent.is_empty() && requests != json!({}) {
                true => needed(requests, None).into(),
                false => told("nothing more can be asked for"),
            }
        }
        "test_streaming_elicitation" => match sent.is_empty() {
            true => needed(json!({ "user_name": name }), None).into(),
            false => told("done"),
        },
        _ => return None,
    }))
}

/// Asks twice, one after the other.
fn in_rounds(sent: &InputResponses, state: Option<&str>) -> Result<CallToolResponse, ErrorData> {
    if state.is_none() {
        let first = elicitation("Step 1: What is your name?", "name", "string");
        return Ok(needed(json!({ "step1": first }), Some("first")).into());
    }
    Ok(match opened(state)? {
        "first" if sent.contains_key("step1") => {
            let second = elicitation("Step 2: What is your favorite color?", "color", "string");
            needed(json!({ "step2": second }), Some("second")).into()
        }
        "second" if sent.contains_key("step2") => told("both were sent"),
        _ => return Err(ErrorData::invalid_params("what was asked for is missing", None)),
    })
}

/// The answer to a request for the prompt.
pub(crate) fn prompt(request: &GetPromptRequestParams) -> GetPromptResponse {
    let sent = request.input_responses.clone().unwrap_or_default();
    let context = sent.get("user_context").and_then(|answer| answer.pointer("/content/context")?.as_str());
    match context {
        Some(context) => {
            let message = json!({ "role": "user", "content": { "type": "text", "text": context } });
            GetPromptResponse::Complete(complete(json!({ "messages": [message] })))
        }
        None => {
            let context = elicitation("What context should the prompt use?", "context", "string");
            needed(json!({ "user_context": context }), None).into()
        }
    }
}
