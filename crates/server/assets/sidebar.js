// The list of conversations, and what can be done to one.

import { byId, h, iconButton, toast } from "./dom.js";
import { title } from "./conversation.js";
import * as store from "./store.js";
import { day } from "./words.js";

// `open` shows a conversation; `renamed` and `removed` tell of changes to one.
export class Sidebar {
  constructor(actions) {
    Object.assign(this, actions);
    this.current = "";
    this.shown = "";
    this.renaming = false;
    byId("menu").onclick = () => this.toggle(true);
    byId("backdrop").onclick = () => this.toggle(false);
    byId("sidebar-close").onclick = () => this.toggle(false);
  }

  get isShown() {
    return document.body.classList.contains("sidebar-shown");
  }

  // On narrow screens it lies over the page.
  toggle(shown) {
    document.body.classList.toggle("sidebar-shown", shown);
    byId("menu").setAttribute("aria-expanded", String(shown));
    if (shown) byId("new-chat").focus();
  }

  // Nothing is touched that has not changed: somebody may be about to press it.
  async refresh(current = this.current) {
    this.current = current;
    const heads = await store.list();
    const seen = heads.map(({ id, title, updated }) => [id, title, day(updated)]);
    const shown = JSON.stringify([current, seen]);
    if (shown === this.shown || this.renaming) return;
    this.shown = shown;
    const nodes = [];
    let group = "";
    for (const head of heads) {
      if (day(head.updated) !== group) nodes.push(h("h2.group", {}, (group = day(head.updated))));
      nodes.push(this.entry(head));
    }
    byId("conversations").replaceChildren(...nodes);
  }

  entry(head) {
    const label = title(head);
    const close = () => this.toggle(false);
    const link = h("a.entry-name", { href: `#${head.id}`, title: label, onclick: close }, label);
    if (head.id === this.current) link.setAttribute("aria-current", "page");
    const row = h("div.entry", { role: "listitem" }, link);
    const rename = () => this.rename(head, row);
    row.append(
      iconButton("pen", `Rename ${label}`, rename),
      iconButton("download", `Export ${label}`, () => download(head.id)),
      iconButton("bin", `Delete ${label}`, () => this.remove(head)),
    );
    return row;
  }

  rename(head, row) {
    const props = { value: title(head), maxLength: 200, "aria-label": "Name of the conversation" };
    const field = h("input", props);
    const done = async (keep) => {
      field.onblur = null;
      this.renaming = false;
      this.shown = "";
      const name = field.value.trim();
      if (keep && name) await this.renamed(head.id, name);
      await this.refresh();
    };
    field.onkeydown = (event) => {
      if (event.key === "Enter") done(true);
      if (event.key === "Escape") (event.stopPropagation(), done(false));
    };
    field.onblur = () => done(true);
    this.renaming = true;
    row.replaceChildren(field);
    field.select();
  }

  async remove(head) {
    const kept = await store.load(head.id);
    await this.removed(head.id);
    await this.refresh();
    const press = async () => (await store.save(kept), await this.refresh());
    toast(`Deleted “${title(head)}”`, kept && { label: "Undo", press });
  }
}

async function download(id) {
  const conversation = await store.load(id);
  const text = JSON.stringify(conversation, null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const name = title(conversation).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  h("a", { href: url, download: `${name || "conversation"}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
