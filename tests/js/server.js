// A `gannet serve` on a free port. GANNET_BIN names the binary; GANNET_MODEL, if set,
// the model (the built-in one by default).
//
//     cd tests/js && npm ci
//     GANNET_BIN=../../target/release/gannet npm test

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const START_MS = 120_000;

export class Server {
  static async start(...options) {
    const model = process.env.GANNET_MODEL ? ["-m", process.env.GANNET_MODEL] : [];
    // Drafts would have requests end before the tests leave them.
    const slow = ["--speculate", "off"];
    const args = ["serve", "--port", "0", ...slow, ...options, ...model];
    const child = spawn(process.env.GANNET_BIN, args, { stdio: ["ignore", "ignore", "pipe"] });
    const server = new Server();
    server.child = child;
    server.ended = new Promise((resolve) => child.once("exit", resolve));
    server.address = await listening(child);
    return server;
  }

  async requests() {
    const response = await fetch(`${this.address}/v1/stats?format=json`);
    return (await response.json()).requests;
  }

  // Polls the counts of requests until `condition` holds.
  async until(condition, ms = 20_000) {
    const end = Date.now() + ms;
    for (;;) {
      const counts = await this.requests();
      if (condition(counts)) return counts;
      if (Date.now() > end) throw new Error(`not within ${ms} ms: ${JSON.stringify(counts)}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  // Waits until one request more than `before` is cancelled and none runs: a request that is
  // cancelled while it waits never ran.
  async untilOneIsCancelled(before) {
    const expected = before.finished.cancelled + 1;
    await this.until(({ running, finished }) => !running && finished.cancelled === expected);
  }

  async stop() {
    this.child.kill("SIGTERM");
    return this.ended;
  }
}

function listening(child) {
  return new Promise((resolve, reject) => {
    const log = [];
    const fail = () => reject(new Error(`the server did not start:\n${log.join("\n")}`));
    const timer = setTimeout(() => (child.kill(), fail()), START_MS);
    child.once("exit", fail);
    child.once("error", reject);
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      const found = /listening on (http:\/\/[0-9.:]+)/.exec(line);
      if (!found) return;
      clearTimeout(timer);
      resolve(found[1]);
    });
  });
}

export const CITY = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};

export const CAPITAL = "What is the capital of France?";
export const WEATHER = "What is the weather in Paris?";

export async function collect(stream) {
  const all = [];
  for await (const one of stream) all.push(one);
  return all;
}
