import { greet } from "greeting";

console.log(greet("world"));
