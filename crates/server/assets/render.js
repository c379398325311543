// Markdown as elements. markdown-it reads it, without HTML and without images; DOMPurify, whose
// policy of trusted types is the only one, makes elements of the result and lets none through
// that is not listed here.

import { codeBlock } from "./code.js";
import { fill, h } from "./dom.js";
import { formulas, typeset } from "./formulas.js";
import { DOMPurify, markdownit } from "./libraries.js";

// Quotes and lists nested deeper are shown as text.
const DEPTH = 30;
const LINK = /^(?:https?:\/\/|mailto:)/i;
const SAFE = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol",
    "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["class", "href", "start"],
  ALLOWED_URI_REGEXP: LINK,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const markdown = markdownit({ breaks: true, linkify: true, maxNesting: DEPTH }).use(formulas);
markdown.linkify.set({ fuzzyEmail: false, fuzzyLink: false });
markdown.validateLink = (url) => LINK.test(url);
markdown.renderer.rules.image = imageLink;

// An image is a link: to show it would tell its host who reads.
function imageLink(tokens, at) {
  const { escapeHtml } = markdown.utils;
  const url = tokens[at].attrGet("src");
  return `<a href="${escapeHtml(url)}">${escapeHtml(tokens[at].content || url)}</a>`;
}

// The blocks of `text`, each with the lines from `line` to `end` that it was read from.
export function blocks(text) {
  const env = {};
  const found = [];
  let from = 0;
  const tokens = markdown.parse(text, env);
  for (const [at, token] of tokens.entries()) {
    if (token.level !== 0 || token.nesting > 0) continue;
    const [line, end] = tokens[from].map;
    found.push({ tokens: tokens.slice(from, at + 1), env, line, end });
    from = at + 1;
  }
  return found;
}

// The program that a block is, if it is one.
export function program({ tokens: [token] }) {
  if (token.type !== "fence" && token.type !== "code_block") return null;
  const language = token.info.trim().split(/\s/)[0];
  return { text: token.content.replace(/\n$/, ""), language };
}

// The elements of a block.
export function render(block) {
  const source = program(block);
  if (source) return [codeBlock(source.text, source.language)];
  for (const token of block.tokens) align(token);
  const html = markdown.renderer.render(block.tokens, markdown.options, block.env);
  const fragment = DOMPurify.sanitize(html, SAFE);
  decorate(fragment);
  return [...fragment.childNodes].filter((node) => node.textContent !== "\n");
}

// The page's policy allows no styles in attributes.
function align(token) {
  const style = token.attrGet("style");
  if (!style) return;
  token.attrs = token.attrs.filter(([name]) => name !== "style");
  token.attrSet("class", style.replace("text-align:", ""));
}

function decorate(fragment) {
  for (const link of fragment.querySelectorAll("a[href]")) {
    Object.assign(link, { target: "_blank", rel: "noopener noreferrer" });
  }
  for (const code of fragment.querySelectorAll("pre > code")) {
    const language = /language-(\S+)/.exec(code.className)?.[1] ?? "";
    code.parentElement.replaceWith(codeBlock(code.textContent.replace(/\n$/, ""), language));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const box = h("div.table", { tabIndex: 0 });
    table.replaceWith(box);
    fill(box, [table]);
  }
  typeset(fragment);
}
