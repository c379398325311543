// What stands within a line of Markdown: code, emphasis, links. Made with DOM calls, in one pass,
// with a stack of bounded depth, so that no text takes longer than its length.

import { fill, h } from "./dom.js";

const DEPTH = 16;
const SPECIAL = /[\\`*_~[\]!\nh]/g;
const ESCAPED = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
const TARGET = /\]\(\s{0,8}((?:[^\s()<>]|\([^\s()<>]{0,500}\)){1,2000})(?:\s{1,8}"[^"\n]{0,500}")?\s{0,8}\)/y;
const BARE = /https?:\/\/[^\s<>"'`*\[\]]{1,2000}/y;
const TAGS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };

// The nodes of `text`.
export function inline(text) {
  return new Line(text).nodes();
}

class Line {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.stack = [{ mark: "", nodes: [] }];
    this.ticks = null;
  }

  get top() {
    return this.stack[this.stack.length - 1];
  }

  nodes() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const next = SPECIAL.exec(text)?.index ?? text.length;
      this.put(text.slice(this.at, next));
      this.at = next;
      if (next < text.length) this.special(text[next]);
    }
    this.flatten(1);
    return this.top.nodes;
  }

  // Neighbouring texts become one node only at the end: strings are cheaper to join.
  put(piece) {
    const { nodes } = this.top;
    if (piece === "") return;
    if (typeof piece === "string" && typeof nodes[nodes.length - 1] === "string") {
      nodes[nodes.length - 1] += piece;
    } else {
      nodes.push(piece);
    }
  }

  plain(length) {
    this.put(this.text.slice(this.at, this.at + length));
    this.at += length;
  }

  special(char) {
    if (char === "\\") this.escape();
    else if (char === "`") this.code();
    else if (char === "\n") this.lineEnd();
    else if (char === "h") this.bare();
    else if (char === "!") this.plain(1);
    else if (char === "[") this.open("[", 1);
    else if (char === "]") this.closeLink();
    else this.emphasis(char);
  }

  escape() {
    const next = this.text[this.at + 1] ?? "";
    if (!ESCAPED.test(next)) return this.plain(1);
    this.put(next);
    this.at += 2;
  }

  lineEnd() {
    this.put(h("br"));
    this.at += 1;
  }

  code() {
    const length = this.run("`");
    const end = this.closingTicks(length);
    if (end === undefined) return this.plain(length);
    const inner = this.text.slice(this.at + length, end).replaceAll("\n", " ");
    const padded = /^ .*[^ ].* $/.test(inner);
    this.put(h("code", {}, padded ? inner.slice(1, -1) : inner));
    this.at = end + length;
  }

  // Where the next run of so many backticks begins. All runs are found once, and each list is
  // only ever read forwards.
  closingTicks(length) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const { 0: run, index } of this.text.matchAll(/`+/g)) {
        if (!this.ticks.has(run.length)) this.ticks.set(run.length, { next: 0, starts: [] });
        this.ticks.get(run.length).starts.push(index);
      }
    }
    const runs = this.ticks.get(length);
    while (runs && runs.starts[runs.next] <= this.at) runs.next += 1;
    return runs?.starts[runs.next];
  }

  run(char) {
    let end = this.at;
    while (this.text[end] === char) end += 1;
    return end - this.at;
  }

  bare() {
    BARE.lastIndex = this.at;
    const before = this.text[this.at - 1] ?? " ";
    const found = !WORD.test(before) && !this.find("[") && BARE.exec(this.text);
    if (!found) return this.plain(1);
    const url = found[0].replace(/[.,;:!?)]{1,8}$/, "");
    this.put(link(url, [url]));
    this.at += url.length;
  }

  // A mark that opens, if the stack is not too deep to bother.
  open(mark, length) {
    if (this.stack.length > DEPTH) return this.plain(length);
    this.stack.push({ mark, nodes: [] });
    this.at += length;
  }

  find(mark) {
    for (let i = this.stack.length - 1; i > 0; i -= 1) {
      if (this.stack[i].mark === mark) return i;
    }
    return 0;
  }

  // Gives up on the marks from `level` on: they were text after all.
  flatten(level) {
    while (this.stack.length > level) {
      const { mark, nodes } = this.stack.pop();
      this.put(mark);
      for (const node of nodes) this.put(node);
    }
  }

  // Ends what began at `level`, as an element that `make` makes of its nodes.
  close(level, make) {
    this.flatten(level + 1);
    const { nodes } = this.stack.pop();
    this.put(make(nodes));
  }

  emphasis(char) {
    const length = this.run(char);
    const [before, after] = [this.text[this.at - 1] ?? " ", this.text[this.at + length] ?? " "];
    const within = char === "_" && WORD.test(before) && WORD.test(after);
    if (length > 3 || within || (char === "~" && length !== 2)) return this.plain(length);
    let left = /\s/.test(before) ? length : this.closeMarks(char, length);
    if (left > 0 && /\s/.test(after)) return this.plain(left);
    if (left === 3) {
      this.open(char + char, 2);
      left = 1;
    }
    if (left > 0) this.open(char.repeat(left), left);
  }

  // Closes as many marks as the run is long; returns how much of it is left.
  closeMarks(char, length) {
    let left = length;
    while (left > 0) {
      const sizes = left === 2 ? [2, 1] : [1, 2].filter((size) => size <= left);
      const size = sizes.find((size) => this.find(char.repeat(size)) > 0);
      if (!size) break;
      const mark = char.repeat(size);
      this.close(this.find(mark), (nodes) => fill(h(TAGS[mark]), nodes));
      left -= size;
      this.at += size;
    }
    return left;
  }

  closeLink() {
    const level = this.find("[");
    TARGET.lastIndex = this.at;
    const found = level > 0 && TARGET.exec(this.text);
    if (found) {
      this.close(level, (nodes) => link(found[1], nodes));
      this.at += found[0].length;
    } else {
      if (level > 0) this.flatten(level);
      this.plain(1);
    }
  }
}

// A link to where a reader may be led; to anything else, the words alone. An image is a link too:
// to show it would tell its host who reads.
function link(url, nodes) {
  if (!/^(https?:\/\/|mailto:)/i.test(url)) return fill(h("span"), nodes);
  const anchor = h("a", { href: url, target: "_blank", rel: "noopener noreferrer" });
  return fill(anchor, nodes.length > 0 ? nodes : [url]);
}
