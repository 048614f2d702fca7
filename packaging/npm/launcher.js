#!/usr/bin/env node
// Runs the nuncio binary of this machine's platform package, as if it had been called itself.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `nuncio-${process.platform}-${process.arch}`;
let binary;
try {
    binary = require.resolve(`${platform}/bin/nuncio`);
} catch {
    console.error(`nuncio: the package ${platform} is not installed; there is one for Linux with glibc (x64, arm64)`);
    process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl+C to both; the binary decides when this ends. What a supervisor sends comes here alone.
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
process.on("SIGINT", () => {
    if (!process.stdin.isTTY) child.kill("SIGINT");
});
child.on("error", (error) => {
    console.error(`nuncio: ${binary} does not start: ${error.message}`);
    process.exit(1);
});
child.on("exit", (code, signal) => {
    // As a shell reports a program that a signal ended.
    process.exit(signal ? 128 + constants.signals[signal] : code);
});
