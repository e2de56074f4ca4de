// What a package of npm makes of requests that fail: node faults_client.cjs VENDOR URL
//
// As faults_client.py, which says what is there.

const assert = require("node:assert");

const [vendor, url] = process.argv.slice(2);
const sdk = vendor === "anthropic" ? require("@anthropic-ai/sdk") : require("openai");

function skills(fate, base = "/a/demo", token = "keeper") {
  const settings = { apiKey: token, defaultHeaders: { "x-fate": fate } };
  return vendor === "anthropic"
    ? new sdk.Anthropic({ ...settings, baseURL: `${url}/compat/anthropic${base}` }).skills
    : new sdk.OpenAI({ ...settings, baseURL: `${url}/compat/openai${base}/v1` }).skills;
}

async function files(name, content) {
  const directory = vendor === "anthropic" ? `${name}/` : "";
  return [
    await sdk.toFile(Buffer.from(`---\nname: ${name}\ndescription: Counts lines.\n---\n`), `${directory}SKILL.md`),
    await sdk.toFile(content, `${directory}data`),
  ];
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

async function raises(status, code, answer) {
  await assert.rejects(answer, (error) => error.status === status && JSON.stringify(error.error).includes(code));
}

async function main() {
  const whole = skills("pass");
  const cut = skills("cut");
  await raises(400, "already_exists", cut.create({ files: await files("once", Buffer.from("1")) }));
  assert.strictEqual((await all(whole.versions.list("once"))).length, 1);
  const now = vendor === "openai" ? { default: true } : {};
  const second = await cut.versions.create("once", { files: await files("once", Buffer.from("2")), ...now });
  const versions = await all(whole.versions.list("once"));
  assert.deepStrictEqual([versions.length, versions[0].id], [2, second.id]);
  const first = (await all(whole.versions.list("kept"))).at(-1);
  const name = vendor === "openai" ? first.version : first.id;
  await raises(409, "conflict", skills("final").versions.delete(name, { skill_id: "kept" }));
  const full = skills("final", "/u/alice/a/demo", "alice");
  await raises(507, "quota", full.create({ files: await files("large", Buffer.alloc(2 << 20)) }));
  await raises(503, "stopped", skills("unavailable").list());
  console.log("done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
