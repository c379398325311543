#!/usr/bin/env node
"use strict";

// The program of this platform, with the arguments, streams, signals and exit code of this process.

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { binaryPath } = require("../platform.js");

let binary;
try {
  binary = binaryPath();
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });

for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    // A terminal sends Ctrl-C to both, and a second signal would end a server at once.
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });
}

child.on("error", (error) => {
  console.error(`error: cannot run ${binary}: ${error.message}`);
  process.exit(1);
});

child.on("exit", (code, signal) => {
  process.exit(signal ? 128 + constants.signals[signal] : code);
});
