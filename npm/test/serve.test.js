"use strict";

// `serve` with the program that GANNET_BIN names.

const assert = require("node:assert/strict");
const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { test } = require("node:test");
const { serve, binaryPath } = require("..");

const binary = process.env.GANNET_BIN;
assert.ok(binary, "expected the path of the program in GANNET_BIN");

/** The status of a route. */
function status(server, route) {
  const { socketPath } = server;
  return new Promise((resolve, reject) => {
    const request = http.get(`${server.url}${route}`, { socketPath, agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    request.on("error", reject);
  });
}

function isRunning(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function until(what, condition) {
  for (let tries = 0; tries < 600; tries++) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`${what}: not within a minute`);
}

test("a server answers at a free port and ends when it is closed", async () => {
  const lines = [];
  const server = await serve({ binary, onLog: (line) => lines.push(line), args: ["--ctx", "256"] });
  assert.match(server.url, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.equal(server.socketPath, undefined);
  assert.equal(await status(server, "/health"), 200);
  assert.ok(lines.some((line) => line.includes(server.url)));
  await Promise.all([server.close(), server.close()]);
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  assert.equal(isRunning(server.pid), false);
});

test("a server listens on a socket in a folder of its own, which goes with it", async () => {
  const server = await serve({ binary, unix: true });
  assert.equal(await status(server, "/health"), 200);
  const folder = path.dirname(server.socketPath);
  assert.ok(fs.existsSync(folder));
  await server[Symbol.asyncDispose]();
  assert.equal(fs.existsSync(folder), false);
});

test("a server that does not start is an error that quotes its log", async () => {
  await assert.rejects(serve({ binary, model: "/no/model" }), (error) => {
    assert.match(error.message, /exit code 1/);
    assert.match(error.message, /\/no\/model/);
    return true;
  });
  await assert.rejects(serve({ binary: "/no/program" }), /ENOENT/);
  const leftover = fs.readdirSync(require("node:os").tmpdir());
  await assert.rejects(serve({ binary, unix: true, model: "/no/model" }), /exit code 1/);
  assert.deepEqual(fs.readdirSync(require("node:os").tmpdir()).sort(), leftover.sort());
});

test("an aborted start ends the process", async () => {
  const controller = new AbortController();
  let pid;
  const starting = serve({ binary, signal: controller.signal, onLog: () => controller.abort() });
  await assert.rejects(starting.then((server) => (pid = server.pid)), { name: "AbortError" });
  assert.equal(pid, undefined);
  await assert.rejects(serve({ binary, signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("wrong options are named", async () => {
  await assert.rejects(serve({ prot: 1 }), /prot: no such option \(known: model, host, port/);
  await assert.rejects(serve({ port: "1" }), /port: expected number, found string/);
  await assert.rejects(serve({ unix: false }), /unix: expected string or true, found boolean/);
  await assert.rejects(serve({ unix: "/a", port: 1 }), /unix: expected no host and no port/);
  await assert.rejects(serve(null), /expected an object of options, found null/);
});

test("a server ends with its parent, however that ends", async () => {
  const program = `
    const { serve } = require(${JSON.stringify(path.join(__dirname, ".."))});
    serve({ binary: process.env.GANNET_BIN }).then((server) => console.log(server.pid));
  `;
  const parent = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await require("node:events").once(parent.stdout, "data");
  const pid = Number(line);
  assert.ok(isRunning(pid));
  parent.kill("SIGKILL");
  await until("the server ends", () => !isRunning(pid));
});

test("without the package of the platform the missing one is named", (context) => {
  const name = `gannet-${process.platform}-${process.arch}`;
  try {
    binaryPath();
    context.skip(`${name} is installed`);
  } catch (error) {
    assert.match(error.message, new RegExp(name));
    const run = spawnSync(process.execPath, [path.join(__dirname, "../bin/gannet.js")]);
    assert.equal(run.status, 1);
    assert.match(String(run.stderr), new RegExp(`^error: .*${name}`));
  }
});

test("the types are those of the module", () => {
  const types = fs.readFileSync(path.join(__dirname, "../index.d.ts"), "utf8");
  const functions = [...types.matchAll(/^export function (\w+)/gm)].map((found) => found[1]);
  assert.deepEqual(functions.sort(), Object.keys(require("..")).sort());
  const source = fs.readFileSync(path.join(__dirname, "../index.js"), "utf8");
  const known = [...source.matchAll(/^ {2}\["(\w+)", "/gm)].map((found) => found[1]);
  const described = types.split("interface ServeOptions")[1].split("\n}")[0];
  const options = [...described.matchAll(/^ {2}(\w+)\?:/gm)].map((found) => found[1]);
  assert.deepEqual(options.sort(), known.sort());
});
