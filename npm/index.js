"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const readline = require("node:readline");
const { binaryPath } = require("./platform.js");

/** Lines of the server's log that an error quotes. */
const QUOTED = 20;

const OPTIONS = new Map([
  ["model", "string"],
  ["host", "string"],
  ["port", "number"],
  ["unix", "string or true"],
  ["args", "array"],
  ["cwd", "string"],
  ["env", "object"],
  ["binary", "string"],
  ["onLog", "function"],
  ["signal", "object"],
]);

/** Starts a server; index.d.ts describes the options and the result. */
async function serve(options = {}) {
  check(options);
  options.signal?.throwIfAborted();
  const folder = options.unix === true ? await temporaryFolder() : undefined;
  const socketPath = folder ? path.join(folder, "gannet.sock") : options.unix;
  const remove = () => (folder ? fs.rm(folder, { recursive: true, force: true }) : undefined);
  try {
    const binary = options.binary ?? binaryPath();
    // The server ends when the pipe to its standard input does, however this process ends.
    const child = spawn(binary, commandLine(options, socketPath), {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: ["pipe", "ignore", "pipe"],
    });
    child.stdin.on("error", () => {});
    const exited = ended(child, remove);
    const url = await listening(child, exited, options, socketPath);
    return running(child, exited, url, socketPath);
  } catch (error) {
    await remove();
    throw error;
  }
}

function check(options) {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`serve: expected an object of options, found ${options}`);
  }
  for (const [name, value] of Object.entries(options)) {
    const expected = OPTIONS.get(name);
    if (!expected) {
      const known = [...OPTIONS.keys()].join(", ");
      throw new TypeError(`serve: ${name}: no such option (known: ${known})`);
    }
    const found = Array.isArray(value) ? "array" : typeof value;
    const isTrue = value === true && expected.endsWith("true");
    if (value !== undefined && !isTrue && found !== expected.split(" ")[0]) {
      throw new TypeError(`serve: ${name}: expected ${expected}, found ${found}`);
    }
  }
  if (options.unix && (options.host !== undefined || options.port !== undefined)) {
    throw new TypeError("serve: unix: expected no host and no port with a socket");
  }
}

function commandLine(options, socketPath) {
  const address = socketPath
    ? ["--unix", socketPath]
    : ["--host", options.host ?? "127.0.0.1", "--port", String(options.port ?? 0)];
  const model = options.model === undefined ? [] : ["--model", options.model];
  return ["serve", "--stop-at-eof", ...address, ...model, ...(options.args ?? [])];
}

function temporaryFolder() {
  return fs.mkdtemp(path.join(os.tmpdir(), "gannet-"));
}

/** How the process ends; it never rejects. */
function ended(child, remove) {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve({ code: null, signal: null, error }));
    child.once("exit", (code, signal) => resolve({ code, signal }));
  }).then(async (end) => {
    await remove();
    return end;
  });
}

/** Waits until the server listens, and gives its address. */
function listening(child, exited, options, socketPath) {
  const last = [];
  return new Promise((resolve, reject) => {
    const abort = () => child.kill("SIGKILL");
    options.signal?.addEventListener("abort", abort, { once: true });
    const lines = readline.createInterface({ input: child.stderr });
    lines.on("line", (line) => {
      options.onLog?.(line);
      last.push(line);
      if (last.length > QUOTED) last.shift();
      const address = /listening on ([^"\s]+)/.exec(line)?.[1];
      if (!address?.startsWith(socketPath ? "unix:" : "http")) return;
      if (!options.signal?.aborted) {
        options.signal?.removeEventListener("abort", abort);
        resolve(socketPath ? "http://localhost" : address);
      }
    });
    const closed = new Promise((done) => lines.once("close", done));
    exited.then(async ({ code, signal, error }) => {
      if (options.signal?.aborted) return reject(options.signal.reason);
      // The last line of the log may come after the end of the process.
      if (!error) await closed;
      const how = error ? error.message : signal ? `signal ${signal}` : `exit code ${code}`;
      const log = last.map((line) => `\n  ${line}`).join("");
      reject(new Error(`gannet serve ended before it listened: ${how}${log}`, { cause: error }));
    });
  });
}

function running(child, exited, url, socketPath) {
  let closing;
  const close = () => {
    closing ??= (async () => {
      child.kill("SIGTERM");
      await exited;
    })();
    return closing;
  };
  // Node.js 20 has the symbol from version 20.5 on.
  const dispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
  return { url, socketPath, pid: child.pid, exited, close, [dispose]: close };
}

module.exports = { serve, binaryPath };
