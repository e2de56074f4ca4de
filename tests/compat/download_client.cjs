// Downloads the version in force of the only skill, with the npm package of a vendor: node download_client.cjs VENDOR URL

const { createHash } = require("node:crypto");

const [vendor, url] = process.argv.slice(2);

async function anthropic() {
  const { Anthropic } = require("@anthropic-ai/sdk");
  const api = new Anthropic({ apiKey: "keeper", baseURL: `${url}/compat/anthropic/a/demo` });
  const skills = api.beta.skills;
  for await (const skill of skills.list()) {
    // Its own way to download, where it has one; else by its way to ask for anything.
    return skills.versions.download
      ? skills.versions.download("latest", { skill_id: skill.id })
      : api.get(`/v1/skills/${skill.id}/versions/latest/content`, { __binaryResponse: true });
  }
}

async function openai() {
  const { OpenAI } = require("openai");
  const { skills } = new OpenAI({ apiKey: "keeper", baseURL: `${url}/compat/openai/a/demo/v1` });
  for await (const skill of skills.list()) return skills.versions.content.retrieve("latest", { skill_id: skill.id });
}

async function main() {
  const answer = await { anthropic, openai }[vendor]();
  const archive = Buffer.from(await answer.arrayBuffer());
  console.log("digest", createHash("sha256").update(archive).digest("hex"));
  console.log("done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
