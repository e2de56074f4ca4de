// Everything that the npm package `@anthropic-ai/sdk` has for skills, at the door of a service: node anthropic_client.cjs URL

const assert = require("node:assert");
const { Anthropic, toFile } = require("@anthropic-ai/sdk");

const [url] = process.argv.slice(2);
const FIELDS = {
  skill: ["created_at", "display_name", "id", "latest_version_id", "source", "type", "updated_at"],
  skill_version: ["created_at", "description", "id", "name", "skill_id", "type"],
  skill_deleted: ["id", "type"],
  skill_version_deleted: ["id", "type"],
};

const client = (base, token) =>
  new Anthropic({ apiKey: token, baseURL: `${url}/compat/anthropic${base}`, maxRetries: 0 });

async function files(text, name = "数据统计") {
  return [
    await toFile(Buffer.from(`---\nname: ${name}\ndescription: Counts lines.\n---\n`), `${name}/SKILL.md`),
    await toFile(Buffer.from(`#!/bin/sh\necho ${text}`), `${name}/scripts/run.sh`),
    await toFile(Buffer.from(""), `${name}/empty`),
  ];
}

// Every field that the package's type has, and no other.
function whole(answer) {
  assert.deepStrictEqual(Object.keys(answer).filter((name) => !name.startsWith("_")).sort(), FIELDS[answer.type]);
  for (const name of FIELDS[answer.type]) assert(answer[name], `${answer.type}.${name}`);
  return answer;
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

async function everything(api, skills) {
  const made = whole(await skills.create({ files: await files("1"), display_name: "统计" }));
  assert.strictEqual(made.display_name, "统计");
  await assert.rejects(skills.create({ files: await files("1") }), (error) => {
    return error instanceof Anthropic.BadRequestError && error.error.error.details.error_code === "already_exists";
  });
  const other = whole(await skills.create({ files: await files("1", "other") }));
  assert.strictEqual(whole(await skills.retrieve(made.id)).id, made.id);
  assert.deepStrictEqual((await all(skills.list({ limit: 1 }))).map((each) => each.id), [other.id, made.id]);
  const second = whole(await skills.versions.create(made.id, { files: await files("2") }));
  assert.deepStrictEqual([second.name, second.description], ["数据统计", "Counts lines."]);
  assert.strictEqual((await skills.versions.create(made.id, { files: await files("2") })).id, second.id);
  const versions = (await all(skills.versions.list(made.id, { limit: 1 }))).map((each) => whole(each).id);
  assert.deepStrictEqual(versions, [second.id, made.latest_version_id]);
  assert.strictEqual((await skills.retrieve(made.id)).latest_version_id, second.id);
  assert.strictEqual(whole(await skills.versions.retrieve("latest", { skill_id: made.id })).id, second.id);
  await assert.rejects(skills.versions.create(made.id, { files: await files("1", "third") }), /keeps its name/);
  // Its own way to download, where it has one; else by its way to ask for anything.
  const answer = skills.versions.download
    ? await skills.versions.download(second.id, { skill_id: made.id })
    : await api.get(`/v1/skills/${made.id}/versions/${second.id}/content`, { __binaryResponse: true });
  const archive = Buffer.from(await answer.arrayBuffer());
  assert.strictEqual(archive.subarray(0, 2).toString(), "PK");
  console.log("digest", require("node:crypto").createHash("sha256").update(archive).digest("hex"));
  await assert.rejects(skills.versions.delete(second.id, { skill_id: made.id }), Anthropic.BadRequestError);
  assert.strictEqual(whole(await skills.versions.delete(versions[1], { skill_id: made.id })).id, versions[1]);
  await assert.rejects(skills.versions.retrieve(versions[1], { skill_id: made.id }), Anthropic.NotFoundError);
  assert.strictEqual(whole(await skills.delete(made.id)).id, made.id);
  await assert.rejects(skills.retrieve(made.id), Anthropic.NotFoundError);
  assert.strictEqual(whole(await skills.delete(other.id)).id, other.id);
}

// What is for all users, and what a user makes of it.
async function views(keeper) {
  const skills = client("/u/alice/a/demo", "alice").beta.skills;
  const shared = await keeper.create({ files: await files("1") });
  assert.strictEqual((await skills.retrieve(shared.id)).source.type, "plugin");
  const own = await skills.versions.create(shared.id, { files: await files("mine") });
  const changed = await skills.retrieve(shared.id);
  assert.deepStrictEqual([changed.source.type, changed.latest_version_id], ["custom", own.id]);
  assert.strictEqual((await keeper.retrieve(shared.id)).latest_version_id, shared.latest_version_id);
  await skills.versions.delete(own.id, { skill_id: shared.id });
  assert.strictEqual((await skills.retrieve(shared.id)).source.type, "plugin");
  for (const base of ["/u/bob/a/demo", "/a/demo"]) {
    await assert.rejects(client(base, "alice").beta.skills.retrieve(shared.id), Anthropic.NotFoundError);
  }
  await assert.rejects(client("/a/demo", "nobody").beta.skills.list(), Anthropic.AuthenticationError);
  await assert.rejects(client("/a/demo", "engine").beta.skills.delete(shared.id), Anthropic.PermissionDeniedError);
  await keeper.delete(shared.id);
}

async function main() {
  const keeper = client("/a/demo", "keeper");
  await everything(keeper, keeper.beta.skills);
  await everything(keeper, keeper.skills);
  await views(keeper.beta.skills);
  console.log("done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
