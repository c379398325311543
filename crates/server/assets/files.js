// Text files that go with the next message: chosen, dropped on the page or pasted.

import { byId, fill, h, iconButton, toast } from "./dom.js";
import { size } from "./words.js";

// Larger files are no reading for a model.
const MAX_BYTES = 2_000_000;
const MAX_FILES = 20;

// The files of the composer. `changed` is called when there are more or fewer.
export class Files {
  constructor(changed) {
    this.changed = changed;
    this.list = [];
    const chooser = byId("files");
    byId("attach").onclick = () => chooser.click();
    chooser.onchange = async () => {
      await this.add([...chooser.files]);
      chooser.value = "";
    };
    byId("question").addEventListener("paste", (event) => this.paste(event));
    this.bindDrop(document.body);
  }

  paste(event) {
    const { files } = event.clipboardData;
    if (files.length === 0) return;
    event.preventDefault();
    this.add([...files]);
  }

  bindDrop(place) {
    const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
    const mark = (on) => place.classList.toggle("dropping", on);
    place.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(true);
    });
    place.addEventListener("dragleave", ({ relatedTarget }) => relatedTarget ?? mark(false));
    place.addEventListener("drop", (event) => {
      mark(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  async add(files) {
    for (const file of files) {
      try {
        if (this.list.length >= MAX_FILES) throw new Error(`a message takes ${MAX_FILES} files`);
        this.list.push({ name: file.name, text: await textOf(file) });
      } catch (error) {
        toast(`${file.name}: ${error.message}`);
      }
    }
    this.show();
    byId("question").focus();
  }

  // The files for a message that is sent; the composer has them no more.
  take() {
    const taken = this.list;
    this.list = [];
    this.show();
    return taken;
  }

  show() {
    const chips = this.list.map((file) => {
      const remove = iconButton("close", `Remove ${file.name}`, () => {
        this.list.splice(this.list.indexOf(file), 1);
        this.show();
        byId("question").focus();
      });
      const name = h("span.chip-name", { title: file.name }, file.name);
      const bytes = h("span.muted", {}, size(file.text.length));
      return h("span.chip", { role: "listitem" }, name, bytes, remove);
    });
    byId("chips").replaceChildren();
    fill(byId("chips"), chips);
    this.changed();
  }
}

async function textOf(file) {
  if (file.size > MAX_BYTES) throw new Error(`${size(file.size)}, at most ${size(MAX_BYTES)} are taken`);
  const text = decoded(await file.arrayBuffer());
  if (text === null || text.includes("\0")) throw new Error("is not a text file");
  return text;
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}
