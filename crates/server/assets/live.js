// Text that grows, shown as Markdown: what is finished is made once and never touched again; only
// the last block is made anew as it grows.

import { fill } from "./dom.js";
import { blocks, render } from "./markdown.js";

export class Live {
  constructor(element) {
    this.element = element;
    // Where in the text the blocks begin that may still change, and the elements that show them.
    this.begin = 0;
    this.open = [];
    this.shown = 0;
  }

  // Shows `text`, which begins with what was shown before.
  update(text) {
    if (text.length === this.shown) return;
    this.shown = text.length;
    const lines = text.slice(this.begin).split("\n");
    const found = blocks(lines);
    if (this.grown(found)) return;
    for (const { element } of this.open) element.remove();
    this.open = found.map((block) => ({ block, element: render(block) }));
    fill(this.element, this.open.map(({ element }) => element));
    this.settle(lines);
  }

  // A long program grows in place, so that it can be read and scrolled meanwhile.
  grown(found) {
    const [{ block, element } = {}] = this.open;
    if (found.length !== 1 || this.open.length !== 1) return false;
    if (block.kind !== "code" || found[0].kind !== "code") return false;
    if (block.language !== found[0].language) return false;
    const node = element.querySelector("pre code").firstChild;
    const { text } = found[0];
    if (text.startsWith(node.data)) node.appendData(text.slice(node.length));
    else node.data = text;
    return true;
  }

  // All blocks but the last are finished. If the last has but a line without an end, it may yet
  // turn out to belong to the one before: "*" may become a list or the first half of "**".
  settle(lines) {
    let open = this.open.length - 1;
    if (this.open[open]?.block.line === lines.length - 1) open -= 1;
    if (open <= 0) return;
    const first = this.open[open].block.line;
    for (let line = 0; line < first; line += 1) this.begin += lines[line].length + 1;
    this.open = this.open.slice(open);
    const moved = ({ block, element }) => ({ block: { ...block, line: block.line - first }, element });
    this.open = this.open.map(moved);
  }
}

// Text that grows and is nothing but text.
export class LiveText {
  constructor(element) {
    this.node = document.createTextNode("");
    element.append(this.node);
  }

  update(text) {
    if (text.length > this.node.length) this.node.appendData(text.slice(this.node.length));
  }
}
