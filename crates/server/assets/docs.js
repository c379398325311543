// The reference of the API, from the document that the server makes of its own types.

import { byId, fill, h } from "./dom.js";

// Types within types are shown so deep; recursive ones end there.
const DEPTH = 4;
const METHODS = ["get", "post", "put", "patch", "delete"];

let types = {};

const named = (schema) => (schema.$ref ? schema.$ref.split("/").pop() : null);
const resolved = (schema) => (schema.$ref ? types[named(schema)] ?? {} : schema);

// A schema in a few words: its name or kind, and the bounds of its values.
function kind(schema) {
  if (schema.$ref) return named(schema);
  const choices = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (choices) return choices.map(kind).join(schema.allOf ? " and " : " or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `array of ${kind(schema.items ?? {})}`;
  const name = [schema.type ?? "anything"].flat().join(" or ");
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  if (low === undefined && high === undefined) return name;
  return `${name}, ${low ?? "…"} to ${high ?? "…"}`;
}

// The members of an object, of all that it is put together from, or of an array's elements.
function members(schema) {
  const { allOf, items, properties, required = [] } = resolved(schema);
  const parts = (allOf ?? []).flatMap(members);
  const own = Object.entries(properties ?? {});
  const list = own.map(([name, type]) => ({ name, type, must: required.includes(name) }));
  return [...parts, ...list, ...(items ? members(items) : [])];
}

function tree(schema, depth) {
  const list = depth > 0 ? members(schema) : [];
  if (list.length === 0) return null;
  return fill(h("ul"), list.map(({ name, type, must }) => member(name, type, must, depth)));
}

function member(name, type, must, depth) {
  const told = type.description ?? resolved(type).description;
  return h("li", {},
    h("code", {}, name), " ", h("span.kind", {}, kind(type) + (must ? ", required" : "")),
    told ? ` ${told}` : null, tree(type, depth - 1));
}

function body(content) {
  return Object.entries(content ?? {}).map(([type, { schema = {} }]) =>
    h("div", {}, h("span.kind", {}, `${type}: ${kind(schema)}`), tree(schema, DEPTH)));
}

function parameter({ name, in: place, schema = {}, required, description }) {
  const kinds = `${kind(schema)} in the ${place}${required ? ", required" : ""}`;
  return h("li", {}, h("code", {}, name), " ", h("span.kind", {}, kinds), ` ${description ?? ""}`);
}

function response([status, { description, content }]) {
  return h("li", {}, h("code", {}, status), ` ${description ?? ""}`, ...body(content));
}

function operation(path, method, told) {
  const inside = h("div.inside", {}, told.description ? h("p", {}, told.description) : null);
  if (told.parameters?.length) fill(inside, [h("p", {}, "Parameters"), fill(h("ul"), told.parameters.map(parameter))]);
  if (told.requestBody) fill(inside, [h("p", {}, "Request"), ...body(told.requestBody.content)]);
  const responses = Object.entries(told.responses ?? {});
  fill(inside, [h("p", {}, "Responses"), fill(h("ul"), responses.map(response))]);
  const summary = h("summary", {},
    h("span.method.mono", {}, method.toUpperCase()), h("code", {}, path),
    h("span.what", {}, told.summary ?? ""));
  return h("details", {}, summary, inside);
}

function show({ info, paths, components }) {
  types = components?.schemas ?? {};
  const groups = new Map();
  for (const [path, operations] of Object.entries(paths)) {
    for (const method of METHODS.filter((name) => operations[name])) {
      const told = operations[method];
      const group = told.tags?.[0] ?? "Others";
      groups.set(group, [...(groups.get(group) ?? []), operation(path, method, told)]);
    }
  }
  const sections = [...groups].map(([name, list]) => fill(h("section", {}, h("h2", {}, name)), list));
  byId("operations").replaceChildren(...sections);
  byId("status").textContent = `${info.title} ${info.version}`;
}

try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  show(await answer.json());
} catch (error) {
  byId("status").textContent = `openapi.json could not be read: ${error.message}`;
}
