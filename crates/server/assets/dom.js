// Making elements. Text reaches the page as text nodes only: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// h("button.small", { type: "button", onclick }, "Save") makes what it looks like.
export function h(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.className = classes.join(" ");
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key.includes("-") || key === "role") element.setAttribute(key, value);
    else element[key] = value;
  }
  return fill(element, children);
}

// Appends nodes and texts, however many: a list spread into arguments has a limit.
export function fill(element, children) {
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

// One of the symbols in index.html.
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

// A button that shows an icon and is called by its label.
export function iconButton(name, label, onclick) {
  const props = { type: "button", title: label, "aria-label": label, onclick };
  return h("button.plain", props, icon(name));
}

let hiding = 0;

// A line at the foot of the page for some seconds, perhaps with something to press.
export function toast(text, action) {
  const box = byId("toast");
  const hide = () => box.replaceChildren();
  const press = () => (hide(), action.press());
  const button = action && h("button.small", { type: "button", onclick: press }, action.label);
  box.replaceChildren(h("div.toast", {}, h("span", {}, text), button));
  clearTimeout(hiding);
  hiding = setTimeout(hide, action ? 8000 : 4000);
}

// Tells those who listen to the page rather than look at it.
export function announce(text) {
  byId("status").textContent = text;
}

// Pages that came over plain HTTP from elsewhere have no clipboard; an old way is left to them.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea.hidden-text", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// A copy button that says for a moment that it has copied.
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    await copy(text());
    button.replaceChildren(icon("check"));
    announce("copied");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}
