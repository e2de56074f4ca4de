// Answers JSON-RPC 2.0 over standard input and output.
import { createInterface } from "node:readline";

const tools = [{ name: "add", description: "Adds numbers", inputSchema: { type: "object" } }];
const methods = {
  initialize: () => ({ protocolVersion: "2025-06-18", serverInfo: { name: "adder", version: "1.0.0" }, capabilities: { tools: {} } }),
  "tools/list": () => ({ tools }),
  "tools/call": ({ arguments: { numbers } }) => ({ content: [{ type: "text", text: String(numbers.reduce((a, b) => a + b, 0)) }] }),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const known = methods[method];
  const answer = known ? { result: known(params) } : { error: { code: -32601, message: `no method ${method}` } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
}
