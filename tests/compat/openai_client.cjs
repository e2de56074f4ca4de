// Everything that the npm package `openai` has for skills, at the door of a service: node openai_client.cjs URL
//
// Names of files are sent as they are; a stream of a file has its name without directories, so that a skill comes flat.

const assert = require("node:assert");
const { OpenAI, toFile } = require("openai");

const [url] = process.argv.slice(2);
const FIELDS = {
  skill: ["created_at", "default_version", "description", "id", "latest_version", "name", "object"],
  "skill.version": ["created_at", "description", "id", "name", "object", "skill_id", "version"],
  "skill.deleted": ["deleted", "id", "object"],
  "skill.version.deleted": ["deleted", "id", "object", "version"],
};

const client = (base, token) =>
  new OpenAI({ apiKey: token, baseURL: `${url}/compat/openai${base}/v1`, maxRetries: 0 }).skills;

async function files(text, name = "数据统计", directory = "") {
  return [
    await toFile(Buffer.from(`---\nname: ${name}\ndescription: Counts lines.\n---\n`), `${directory}SKILL.md`),
    await toFile(Buffer.from(`#!/bin/sh\necho ${text}`), `${directory}run.sh`),
  ];
}

function whole(answer) {
  assert.deepStrictEqual(Object.keys(answer).filter((name) => !name.startsWith("_")).sort(), FIELDS[answer.object]);
  for (const name of FIELDS[answer.object]) assert(answer[name], `${answer.object}.${name}`);
  return answer;
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

async function bytes(answer) {
  const archive = Buffer.from(await (await answer).arrayBuffer());
  assert.strictEqual(archive.subarray(0, 2).toString(), "PK");
  return archive;
}

async function main() {
  const [keeper, alice] = [client("/a/demo", "keeper"), client("/u/alice/a/demo", "alice")];
  const made = whole(await keeper.create({ files: await files("1") }));
  assert.deepStrictEqual([made.default_version, made.latest_version, made.name], ["1", "1", "数据统计"]);
  await assert.rejects(keeper.create({ files: await files("1") }), (error) => error.code === "already_exists");
  // Of two files of one name, and of files without a skill's name, the service does not guess.
  const twice = [...(await files("1", "twice")), ...(await files("1", "twice"))];
  await assert.rejects(keeper.create({ files: twice }), /ZIP/);
  const nameless = [await toFile(Buffer.from("# No name\n"), "SKILL.md")];
  await assert.rejects(keeper.create({ files: nameless }), OpenAI.BadRequestError);
  await assert.rejects(keeper.create(), OpenAI.BadRequestError);
  const archive = await bytes(keeper.content.retrieve(made.id));
  const other = whole(await keeper.create({ files: await files("1", "other", "other/") }));
  assert.deepStrictEqual((await all(keeper.list({ limit: 1 }))).map((each) => each.id), [other.id, made.id]);
  assert.deepStrictEqual((await all(keeper.list({ limit: 1, order: "asc" }))).map((each) => each.id), [made.id, other.id]);
  // A version that is not the default changes nothing for users.
  const second = whole(await keeper.versions.create(made.id, { files: await files("2") }));
  const now = whole(await keeper.retrieve(made.id));
  assert.deepStrictEqual([second.version, now.default_version, now.latest_version], ["2", "1", "2"]);
  assert((await bytes(alice.content.retrieve(made.id))).equals(archive));
  assert.strictEqual(whole(await keeper.update(made.id, { default_version: "2" })).default_version, "2");
  assert(!(await bytes(alice.content.retrieve(made.id))).equals(archive));
  assert.strictEqual((await keeper.update(made.id, { default_version: "1" })).default_version, "1");
  assert((await bytes(alice.content.retrieve(made.id))).equals(archive));
  const third = await keeper.versions.create(made.id, { files: await files("3"), default: true });
  assert.strictEqual((await keeper.retrieve(made.id)).default_version, third.version);
  const versions = (await all(keeper.versions.list(made.id, { limit: 1 }))).map((each) => whole(each).version);
  assert.deepStrictEqual(versions, [third.version, "2", "1"]);
  const of = { skill_id: made.id };
  assert.strictEqual(whole(await keeper.versions.retrieve("2", of)).id, second.id);
  await bytes(keeper.versions.content.retrieve("2", of));
  await assert.rejects(keeper.versions.retrieve("99", of), OpenAI.NotFoundError);
  assert.strictEqual(whole(await keeper.versions.delete("2", of)).version, "2");
  await assert.rejects(keeper.versions.delete(third.version, of), OpenAI.BadRequestError);
  // A user's own state takes the place of the application's for that user alone.
  const own = await alice.versions.create(made.id, { files: await files("mine") });
  assert.strictEqual((await alice.retrieve(made.id)).default_version, own.version);
  assert(!(await bytes(keeper.content.retrieve(made.id))).equals(await bytes(alice.content.retrieve(made.id))));
  await assert.rejects(client("/u/bob/a/demo", "alice").retrieve(made.id), OpenAI.NotFoundError);
  await assert.rejects(client("/a/demo", "nobody").list(), OpenAI.AuthenticationError);
  await assert.rejects(client("/a/demo", "engine").delete(made.id), OpenAI.PermissionDeniedError);
  assert.strictEqual(whole(await alice.delete(made.id)).deleted, true);
  await assert.rejects(alice.retrieve(made.id), OpenAI.NotFoundError);
  assert.strictEqual(whole(await keeper.delete(made.id)).id, made.id);
  assert.strictEqual(whole(await keeper.delete(other.id)).deleted, true);
  assert.deepStrictEqual(await all(keeper.list()), []);
  console.log("done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
