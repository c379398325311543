// Makes crates/server/assets/vendor from the packages that package-lock.json pins with their digests.
//
//     node tools/page-libraries/update.mjs          writes the folder
//     node tools/page-libraries/update.mjs --check  fails where the folder holds anything else

import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const HERE = import.meta.dirname;
const VENDOR = join(HERE, "../../crates/server/assets/vendor");

const SCRIPTS = {
  "highlight.js": "@highlightjs/cdn-assets/es/highlight.min.js",
  "katex.js": "katex/dist/katex.min.js",
  "markdown-it.js": "markdown-it/dist/browser/markdown-it.umd.min.js",
  "purify.js": "dompurify/dist/purify.min.js",
};

// The fonts of letters, operators and brackets. Browsers derive bold and slanted letters from them,
// and draw the few others with fonts of their own.
const FONTS = [
  "AMS-Regular", "Caligraphic-Regular", "Main-Regular", "Math-Italic",
  "Size1-Regular", "Size2-Regular", "Size3-Regular", "Size4-Regular",
].map((name) => `KaTeX_${name}.woff2`);

// What the packages need on a command line alone, and types.
const UNUSED = ["node_modules/argparse", "node_modules/commander", "node_modules/@types/trusted-types"];

// Installs the packages into a folder of its own; npm compares each with its digest.
function install() {
  const folder = mkdtempSync(join(tmpdir(), "page-libraries-"));
  for (const name of ["package.json", "package-lock.json"]) cpSync(join(HERE, name), join(folder, name));
  const options = ["--ignore-scripts", "--loglevel=error", "--no-audit", "--no-fund"];
  execFileSync("npm", ["ci", ...options], { cwd: folder, stdio: "inherit" });
  return folder;
}

// The content of each file of the vendor folder.
function contents(modules) {
  const read = (path) => readFileSync(join(modules, path));
  const files = new Map(FONTS.map((name) => [name, read(`katex/dist/fonts/${name}`)]));
  for (const [name, path] of Object.entries(SCRIPTS)) files.set(name, withoutMap(read(path)));
  files.set("katex.css", Buffer.from(styles(read("katex/dist/katex.min.css").toString())));
  files.set("LICENSES.txt", Buffer.from(licenses(modules)));
  return files;
}

function withoutMap(script) {
  return Buffer.from(script.toString().replace(/\n?\/\/# sourceMappingURL=.*\n?$/, "\n"));
}

// The rules of KaTeX with those fonts that are here, in the one format that all browsers read.
function styles(css) {
  const face = /@font-face\{[^}]*?url\(fonts\/(KaTeX_[^)]*\.woff2)\)[^}]*\}/g;
  const one = (font) => `src:url(${font}) format("woff2")`;
  return css.replace(face, (rule, font) => (FONTS.includes(font) ? rule.replace(/src:[^}]*/, one(font)) : ""));
}

// The name, version and licence of every package, those within the others included.
function licenses(modules) {
  const lock = JSON.parse(readFileSync(join(HERE, "package-lock.json")));
  const paths = Object.keys(lock.packages).filter((path) => path && !UNUSED.includes(path));
  const parts = paths.map((path) => {
    const folder = join(modules, "..", path);
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json")));
    const file = readdirSync(folder).find((one) => /^licen[cs]e(-mit)?(\.\w+)?$/i.test(one));
    if (!file) throw new Error(`${name} ${version} has no file with its licence`);
    const text = readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n");
    return `${"=".repeat(72)}\n${name} ${version}, ${license}\n${"=".repeat(72)}\n\n${text.trim()}\n`;
  });
  return parts.join("\n");
}

function check(files) {
  const found = readdirSync(VENDOR);
  const isSame = (name, content) => found.includes(name) && readFileSync(join(VENDOR, name)).equals(content);
  const wrong = [...files].filter(([name, content]) => !isSame(name, content)).map(([name]) => name);
  wrong.push(...found.filter((name) => !files.has(name)));
  if (wrong.length > 0) throw new Error(`${VENDOR} is not what the packages hold: ${wrong.join(", ")}`);
  console.log(`${files.size} files are those of the packages`);
}

function write(files) {
  for (const name of readdirSync(VENDOR)) rmSync(join(VENDOR, name));
  for (const [name, content] of files) writeFileSync(join(VENDOR, name), content);
}

const folder = install();
try {
  const files = contents(join(folder, "node_modules"));
  (process.argv.includes("--check") ? check : write)(files);
} finally {
  rmSync(folder, { recursive: true });
}
