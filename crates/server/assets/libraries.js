// The libraries in the folder vendor, whose builds are scripts that define one name each.

import hljs from "./vendor/highlight.js";
import "./vendor/katex.js";
import "./vendor/markdown-it.js";
import "./vendor/purify.js";

const { DOMPurify, katex, markdownit } = globalThis;

export { DOMPurify, hljs, katex, markdownit };
