// Programs in answers: coloured by highlight.js, with a bar that names the language and copies.

import { copyButton, h } from "./dom.js";
import { DOMPurify, hljs } from "./libraries.js";

// Longer programs in characters keep one colour.
const MAX_LENGTH = 60_000;
const SPANS = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };

// A program that `paint` may write anew as it grows.
export function codeBlock(text, language) {
  const code = h("code");
  const body = h("pre", { tabIndex: 0 }, code);
  const bar = h("div.code-bar", {}, h("span", {}, language), copyButton("Copy code", () => body.textContent));
  const box = h("div.code", {}, bar, body);
  paint(box, text, language);
  return box;
}

export function paint(box, text, language) {
  box.querySelector("pre code").replaceChildren(coloured(text, language));
}

function coloured(text, language) {
  if (text.length > MAX_LENGTH || !hljs.getLanguage(language)) return document.createTextNode(text);
  const { value } = hljs.highlight(text, { language, ignoreIllegals: true });
  return DOMPurify.sanitize(value, SPANS);
}
