// Formulas in Markdown: $…$ and \(…\) within lines, $$…$$ and \[…\] displayed. markdown-it marks
// them; `typeset` has KaTeX draw them.

import { katex } from "./libraries.js";

// Longer formulas in characters are shown as their source.
const MAX_LENGTH = 10_000;
const CLOSERS = { "$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]" };
const BACKSLASH = "\\";

// The plugin for markdown-it.
export function formulas(markdown) {
  const { escapeHtml } = markdown.utils;
  markdown.inline.ruler.before("escape", "formula", within);
  const alt = ["paragraph", "reference", "blockquote", "list"];
  markdown.block.ruler.before("fence", "formula_block", block, { alt });
  markdown.renderer.rules.formula = (tokens, at) =>
    `<span class="${tokens[at].info}">${escapeHtml(tokens[at].content)}</span>`;
  markdown.renderer.rules.formula_block = (tokens, at) =>
    `<div class="${tokens[at].info}">${escapeHtml(tokens[at].content)}</div>`;
}

function openerAt(text, at) {
  const two = text.slice(at, at + 2);
  if (two in CLOSERS && two.length === 2) return two;
  return text[at] === "$" ? "$" : null;
}

// A formula within a line.
function within(state, silent) {
  const opener = openerAt(state.src, state.pos);
  if (!opener) return false;
  const from = state.pos + opener.length;
  const end = closerAfter(state, from, CLOSERS[opener]);
  const source = end < 0 || end >= state.posMax ? "" : state.src.slice(from, end);
  if (!source.trim() || source.length > MAX_LENGTH) return false;
  if (opener === "$" && isMoney(source, state.src[end + 1])) return false;
  if (!silent) {
    const token = state.push("formula", "", 0);
    token.content = state.src.slice(state.pos, end + opener.length);
    token.info = opener === "$" || opener === "\\(" ? "formula" : "formula display";
  }
  state.pos = end + opener.length;
  return true;
}

// Dollars beside a space or before a digit are amounts, and so are those with code or another
// formula between them.
const isMoney = (source, after) => /^\s|\s$|`|\\[([]/.test(source) || /\d/.test(after ?? "");

// Where `closer` next stands without a backslash before it, or -1. That there is none is
// remembered, so that no text is searched again and again.
function closerAfter(state, from, closer) {
  state.unclosed ??= new Set();
  if (state.unclosed.has(closer)) return -1;
  for (let at = from; ; at += 1) {
    at = state.src.indexOf(closer, at);
    if (at < 0) state.unclosed.add(closer);
    if (at < 0 || !isEscaped(state.src, at, from)) return at;
  }
}

function isEscaped(text, at, from) {
  let slashes = 0;
  while (at - slashes > from && text[at - slashes - 1] === BACKSLASH) slashes += 1;
  return slashes % 2 === 1;
}

// A formula of whole lines. One that the text ends within is shown as its source, and so keeps
// its lines from being read as anything else until its end comes.
function block(state, first, last, silent) {
  if (state.sCount[first] - state.blkIndent >= 4) return false;
  const opener = state.src.slice(start(state, first), start(state, first) + 2);
  if (opener !== "$$" && opener !== "\\[") return false;
  const found = lastLine(state, first, last, CLOSERS[opener]);
  if (!found) return false;
  if (silent) return true;
  const token = state.push("formula_block", "", 0);
  const source = state.getLines(first, found.line + 1, state.blkIndent, false).trim();
  token.content = source;
  token.info = found.isOpen || source.length > MAX_LENGTH ? "formula source" : "formula display";
  token.map = [first, found.line + 1];
  token.block = true;
  state.line = found.line + 1;
  return true;
}

const start = (state, line) => state.bMarks[line] + state.tShift[line];
const lineOf = (state, line) => state.src.slice(start(state, line), state.eMarks[line]).trimEnd();

// The line that ends with `closer`; the text's end will do, an empty line will not. Lines without
// one are remembered.
function lastLine(state, first, last, closer) {
  state.unclosed ??= {};
  if (first < (state.unclosed[closer] ?? 0)) return null;
  for (let line = first; line < last; line += 1) {
    const text = lineOf(state, line).slice(line === first ? 2 : 0);
    const at = text.indexOf(closer);
    const isBlank = line > first && text === "" && line < state.lineMax - 1;
    if (at >= 0 && at === text.length - 2) return { line, isOpen: false };
    if (at >= 0 || isBlank || (line > first && state.sCount[line] < state.blkIndent)) {
      state.unclosed[closer] = line;
      return null;
    }
  }
  return last === state.lineMax ? { line: last - 1, isOpen: true } : null;
}

// Draws the formulas in `root`.
export function typeset(root) {
  for (const element of root.querySelectorAll(".formula:not(.source)")) draw(element);
}

// What KaTeX does not understand, or finds nested too deeply, stays as it was written.
function draw(element) {
  const source = element.textContent;
  const marks = openerAt(source, 0).length;
  const displayMode = element.classList.contains("display");
  try {
    katex.render(source.slice(marks, -marks), element, { displayMode, maxSize: 50 });
  } catch {
    element.textContent = source;
    element.classList.add("source");
  }
}
