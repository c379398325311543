// Blocks of Markdown: paragraphs, headings, lists, code, quotes, tables. `blocks` finds them,
// `render` makes elements of them; what stands within lines is inline.js.

import { copyButton, fill, h } from "./dom.js";
import { inline } from "./inline.js";

// Quotes and lists nested deeper are shown as text.
const DEPTH = 8;
const COLUMNS = 64;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: (.*))?$/;
const RULE = /^ {0,3}(?:(?:\* ?){3,}|(?:- ?){3,}|(?:_ ?){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const QUOTE = /^ {0,3}> ?/;
const BLANK = /^\s*$/;

// The blocks of `lines`, each with the `line` it begins at.
export function blocks(lines, depth = 0) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (BLANK.test(lines[at])) {
      at += 1;
      continue;
    }
    const block = blockAt(lines, at, depth);
    found.push({ ...block, line: at });
    at = block.end;
  }
  return found;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const nested = depth < DEPTH;
  if (FENCE.test(line)) return code(lines, at);
  if (RULE.test(line)) return { kind: "rule", end: at + 1 };
  if (HEADING.test(line)) return heading(line, at);
  if (nested && QUOTE.test(line)) return quote(lines, at);
  if (nested && ITEM.test(line)) return list(lines, at);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, nested);
}

function heading(line, at) {
  const [, marks, text = ""] = line.match(HEADING);
  return { kind: "heading", level: marks.length, text: text.trim().replace(/ #+$/, ""), end: at + 1 };
}

function code(lines, at) {
  const [, fence, info] = lines[at].match(FENCE);
  const indent = indentOf(lines[at]);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  const text = lines.slice(at + 1, end).map((line) => dedent(line, indent)).join("\n");
  return { kind: "code", language: info.trim().split(" ")[0], text, end: end + 1 };
}

function closes(line, fence) {
  const text = line.trim();
  return text.length >= fence.length && text === fence[0].repeat(text.length);
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return { kind: "quote", inner: lines.slice(at, end).map((line) => line.replace(QUOTE, "")), end };
}

// Items of one list: those with its kind of mark, not further in than it.
function list(lines, at) {
  const [, first, mark] = lines[at].match(ITEM);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = lines[end].match(ITEM);
    if (!found || /\d/.test(found[2]) !== ordered || found[1].length > first.length + 1) break;
    if (RULE.test(lines[end])) break;
    const item = itemAt(lines, end, found);
    items.push(item.inner);
    end = item.end;
  }
  return { kind: "list", ordered, start: ordered ? parseInt(mark, 10) : 1, items, end };
}

// The lines of an item: those further in than its mark, and those that go on with its text.
function itemAt(lines, at, [head, spaces]) {
  const inner = [lines[at].slice(head.length)];
  let end = at + 1;
  let blank = false;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const within = indentOf(line) > spaces.length + 1;
    if (BLANK.test(line)) blank = true;
    else if (within) blank = false;
    else if (blank || interrupts(line, true)) break;
    inner.push(within ? dedent(line, head.length) : line.trimStart());
  }
  return { inner, end };
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return false;
  const rule = cells(lines[at + 1]);
  return rule.length === cells(lines[at]).length && rule.every((cell) => /^:?-+:?$/.test(cell));
}

function table(lines, at) {
  const aligns = cells(lines[at + 1]).map(alignment);
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => cells(line).slice(0, aligns.length));
  return { kind: "table", head: cells(lines[at]), rows, aligns, end };
}

function alignment(cell) {
  if (!cell.endsWith(":")) return "left";
  return cell.startsWith(":") ? "center" : "right";
}

function cells(line) {
  const row = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return row.split(/(?<!\\)\|/, COLUMNS).map((cell) => cell.trim());
}

function paragraph(lines, at, nested) {
  let end = at + 1;
  while (end < lines.length && !BLANK.test(lines[end]) && !interrupts(lines[end], nested)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  return { kind: "paragraph", text, end };
}

function interrupts(line, nested) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  return nested && (QUOTE.test(line) || ITEM.test(line));
}

function indentOf(line) {
  let indent = 0;
  while (line[indent] === " ") indent += 1;
  return indent;
}

const dedent = (line, most) => line.slice(Math.min(indentOf(line), most));

// The element of a block.
export function render(block, depth = 0) {
  return RENDERERS[block.kind](block, depth);
}

const RENDERERS = {
  paragraph: ({ text }) => fill(h("p"), inline(text)),
  heading: ({ level, text }) => fill(h(`h${level}`), inline(text)),
  rule: () => h("hr"),
  quote: ({ inner }, depth) => fill(h("blockquote"), children(inner, depth)),
  code: renderCode,
  list: renderList,
  table: renderTable,
};

const children = (lines, depth) =>
  blocks(lines, depth + 1).map((block) => render(block, depth + 1));

function renderCode({ language, text }) {
  const body = h("pre", { tabIndex: 0 }, h("code", {}, document.createTextNode(text)));
  const copy = copyButton("Copy code", () => body.textContent);
  const bar = h("div.code-bar", {}, h("span", {}, language), copy);
  return h("div.code", {}, bar, body);
}

function renderList({ ordered, start, items }, depth) {
  const list = ordered ? h("ol", { start }) : h("ul");
  return fill(list, items.map((lines) => fill(h("li"), itemNodes(lines, depth))));
}

// An item's first paragraph stands in the item itself, as in a list without empty lines.
function itemNodes(lines, depth) {
  const [first, ...rest] = blocks(lines, depth + 1);
  if (!first) return [];
  const head = first.kind === "paragraph" ? inline(first.text) : [render(first, depth + 1)];
  return [...head, ...rest.map((block) => render(block, depth + 1))];
}

function renderTable({ head, rows, aligns }) {
  const cell = (tag) => (text, column) =>
    fill(h(`${tag}.${aligns[column]}`), inline(text.replaceAll("\\|", "|")));
  const body = rows.map((row) => fill(h("tr"), row.map(cell("td"))));
  const top = h("thead", {}, fill(h("tr"), head.map(cell("th"))));
  return h("div.table", { tabIndex: 0 }, h("table", {}, top, fill(h("tbody"), body)));
}
