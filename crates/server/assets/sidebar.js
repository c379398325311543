// The list of conversations, the search over them, and what can be done to one.

import { announce, byId, h, iconButton, toast } from "./dom.js";
import { title } from "./conversation.js";
import * as store from "./store.js";
import { download, read } from "./transfer.js";
import { day } from "./words.js";

// How long nothing is typed before the search begins, in milliseconds.
const TYPING = 150;

// `renamed`, `removed` and `imported` tell of changes to a conversation.
export class Sidebar {
  constructor(actions) {
    Object.assign(this, actions);
    this.current = "";
    this.shown = "";
    this.renaming = false;
    byId("menu").onclick = () => this.toggle(true);
    byId("backdrop").onclick = () => this.toggle(false);
    byId("sidebar-close").onclick = () => this.toggle(false);
    this.bindSearch(byId("search"));
    this.bindImport(byId("import"));
  }

  bindSearch(field) {
    field.oninput = () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.refresh(), TYPING);
    };
    field.onkeydown = (event) => {
      if (event.key !== "Escape" || !field.value) return;
      event.stopPropagation();
      field.value = "";
      this.refresh();
    };
  }

  bindImport(chooser) {
    byId("import-open").onclick = () => chooser.click();
    chooser.onchange = async () => {
      const files = [...chooser.files];
      chooser.value = "";
      for (const file of files) await this.import(file);
    };
  }

  async import(file) {
    try {
      const found = await read(file);
      const count = (await store.list()).length + found.length;
      const many = `${store.MAX_CONVERSATIONS} conversations are kept, with these there would be ${count}`;
      if (count > store.MAX_CONVERSATIONS) throw new Error(many);
      for (const conversation of found) await store.save(conversation);
      await this.imported(found[found.length - 1].id);
      announce("imported");
    } catch (error) {
      toast(`${file.name}: ${error.message}`);
    }
  }

  // What is searched for: words in lower case.
  get words() {
    return byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  }

  get isShown() {
    return document.body.classList.contains("sidebar-shown");
  }

  // On narrow screens it lies over the page.
  toggle(shown) {
    document.body.classList.toggle("sidebar-shown", shown);
    byId("menu").setAttribute("aria-expanded", String(shown));
    if (shown) byId("new-chat").focus();
    else if (byId("sidebar").contains(document.activeElement)) byId("menu").focus();
  }

  // Nothing is touched that has not changed: somebody may be about to press it.
  async refresh(current = this.current) {
    this.current = current;
    const { words } = this;
    const heads = words.length > 0 ? await store.search(words) : await store.list();
    const seen = heads.map(({ id, title, updated, excerpt }) => [id, title, day(updated), excerpt]);
    const shown = JSON.stringify([current, seen, words]);
    if (shown === this.shown || this.renaming || words.join() !== this.words.join()) return;
    this.shown = shown;
    const nodes = words.length > 0 && heads.length === 0 ? [h("p.nothing", {}, "Nothing was found")] : [];
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
    if (head.excerpt) link.append(h("span.excerpt", {}, head.excerpt));
    if (head.id === this.current) link.setAttribute("aria-current", "page");
    const row = h("div.entry", { role: "listitem" }, link);
    const rename = () => this.rename(head, row);
    row.append(
      iconButton("pen", `Rename ${label}`, rename),
      iconButton("download", `Export ${label}`, async () => download(await store.load(head.id))),
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
