// Text that grows, shown as Markdown: what is finished is made once and never touched again; only
// the last block is made anew as it grows.

import { paint } from "./code.js";
import { fill } from "./dom.js";
import { blocks, program, render } from "./render.js";

const LINE_END = /\r\n|\r|\n/g;
// Names for links, which the text before them may use.
const DEFINITION = /^ {0,3}\[[^\]\n]{1,999}\]:/m;

export class Live {
  constructor(element) {
    this.element = element;
    this.reset();
  }

  reset() {
    this.element.replaceChildren();
    // Where in the text the blocks begin that may still change, and the elements that show them.
    this.begin = 0;
    this.open = [];
    this.shown = 0;
  }

  // Shows `text`, which begins with what was shown before.
  update(text) {
    if (text.length === this.shown) return;
    this.shown = text.length;
    const rest = text.slice(this.begin);
    const found = blocks(rest);
    if (this.grown(found)) return;
    for (const { nodes } of this.open) nodes.forEach((node) => node.remove());
    this.open = found.map((block) => ({ block, nodes: render(block) }));
    fill(this.element, this.open.flatMap(({ nodes }) => nodes));
    this.settle(rest);
  }

  // Shows `text` to its end. Where it defines names for links, all of it is read once more.
  finish(text) {
    if (this.finished === text.length) return;
    if (this.begin > 0 && DEFINITION.test(text)) this.reset();
    this.update(text);
    this.finished = text.length;
  }

  // A long program grows in place, so that it can be read and scrolled meanwhile.
  grown(found) {
    if (found.length !== 1 || this.open.length !== 1) return false;
    const [before, now] = [program(this.open[0].block), program(found[0])];
    if (!before || before.language !== now?.language) return false;
    if (before.text !== now.text) paint(this.open[0].nodes[0], now.text, now.language);
    this.open[0].block = found[0];
    return true;
  }

  // All blocks but the last are finished. If the last has but a line without an end, it may yet
  // turn out to belong to the one before: "2" may become the next item of a list.
  settle(rest) {
    const starts = [0];
    for (const { 0: end, index } of rest.matchAll(LINE_END)) starts.push(index + end.length);
    let open = this.open.length - 1;
    if (this.open[open]?.block.line === starts.length - 1) open -= 1;
    if (open <= 0) return;
    this.begin += starts[this.open[open].block.line];
    this.open = this.open.slice(open);
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
