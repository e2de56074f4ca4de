#!/usr/bin/env node
// Puts a module and the packages that it imports into one file.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

const [entry, target] = process.argv.slice(2);
if (entry === "--version") {
  console.log("tiny-bundler 2.1.0");
  process.exit(0);
}
const require = createRequire(resolve(entry));
const imports = /^import \{[^}]*\} from "([^"]+)";\n/gm;
const main = readFileSync(entry, "utf8");
const packages = [...main.matchAll(imports)].map(([, name]) => readFileSync(require.resolve(name), "utf8"));
const bundled = [...packages.map((text) => text.replaceAll("export ", "")), main.replaceAll(imports, "")].join("\n");
writeFileSync(target, bundled);
console.log(`bundled ${packages.length + 1} modules, ${Buffer.byteLength(bundled)} bytes`);
