import assert from "node:assert";
import test from "node:test";

import { greet } from "greeting";

test("greets by name", () => assert.equal(greet("Ada"), "Hello, Ada!"));
