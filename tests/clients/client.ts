// Uses the types that openapi-typescript made of the document with openapi-fetch, as a newcomer would: ADDRESS and TOKEN are
// its arguments. That it compiles in strict mode is half of the test.
import createClient from "openapi-fetch";
import type { components, operations, paths } from "./schema";

declare const process: { argv: string[] };

const [address, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: address, headers: { authorization: `Bearer ${token}` } });
const path = { u: "李四", a: "demo" };

function ensure(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

// What has a shape is not typed as anything at all.
type IsAny<T> = 0 extends 1 & T ? true : false;
type Body<Name extends keyof operations> = operations[Name] extends { requestBody?: { content: { "application/json": infer T } } } ? T : never;
const shapes: [false, false, false] = [
  false as IsAny<Body<"runInWorkspace">>,
  false as IsAny<Body<"runInSkill">>,
  false as IsAny<components["schemas"]["ExecResult"]>,
];
// @ts-expect-error neither a program nor a line
const nothing: Body<"runInWorkspace"> = { timeout_ms: 5 };
// @ts-expect-error a program and a line
const both: Body<"runInWorkspace"> = { command: "ls", shell: "ls" };
// @ts-expect-error no number
const wrong: Body<"runInSkill"> = { command: 5 };

async function main(): Promise<void> {
  const text = (value: unknown) => value as unknown as string;
  const edited = await client.PUT("/v1/sandbox/{u}/{a}/edit", {
    params: { path, query: { path: "n.txt" } },
    body: "one\ntwo\n",
    bodySerializer: text,
    headers: { "content-type": "text/plain" },
  });
  ensure(edited.data?.created === true, edited);
  const etag: string | undefined = edited.data.etag;
  const read = await client.GET("/v1/sandbox/{u}/{a}/content", { params: { path, query: { path: "n.txt", start: 2 } } });
  ensure(Array.isArray(read.data?.data) && read.data.data[0] === "two" && read.data.total_lines === 2, read);

  const replaced = await client.POST("/v1/sandbox/{u}/{a}/replace", {
    params: { path, header: { "If-Match": etag } },
    body: { path: "n.txt", edits: [{ old_string: "two", new_string: "三" }] },
  });
  ensure(replaced.data?.size === 8, replaced);
  const stale = await client.POST("/v1/sandbox/{u}/{a}/replace", {
    params: { path, header: { "If-Match": etag } },
    body: { path: "n.txt", edits: [{ old_string: "三", new_string: "two" }] },
  });
  ensure(stale.response.status === 412 && stale.error?.code === "stale", stale);

  const program = await client.POST("/v1/sandbox/{u}/{a}/exec", { params: { path }, body: { command: "cat", args: ["n.txt"] } });
  // What could be a stream of events is a text.
  ensure(typeof program.data === "object" && "stdout" in program.data.data && program.data.data.stdout === "one\n三\n", program);
  const line = await client.POST("/v1/sandbox/{u}/{a}/exec", { params: { path }, body: { shell: "exit 3" } });
  ensure(typeof line.data === "object" && "exit_code" in line.data.data && line.data.data.exit_code === 3, line);
  const found = await client.POST("/v1/sandbox/{u}/{a}/grep", { params: { path }, body: { pattern: "^三$" } });
  ensure(found.data?.data[0]?.line === 2, found);

  const listed = await client.GET("/v1/sandbox/{u}/{a}/files", { params: { path, query: { detail: true } } });
  ensure(listed.data?.data.length === 1, listed);
  const gone = await client.GET("/v1/sandbox/{u}/{a}/stat", { params: { path, query: { path: "none" } } });
  ensure(gone.error?.code === "not_found" && gone.error.request_id.length > 0, gone);
  console.log("all of it works", shapes.length, [nothing, both, wrong].length);
}

main().catch((error) => {
  console.error(error);
  throw error;
});
