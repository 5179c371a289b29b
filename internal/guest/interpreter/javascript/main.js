// The JavaScript worker reads requests, runs them in the main context, and
// reports results. It copies the globals that it needs at the start, because
// code may replace them.
(function (require, requests, rest) {
  "use strict";
  const { readSync, writeSync } = require("fs");
  const { Script, constants } = require("vm");
  const { inspect } = require("util");
  const { Socket } = require("net");
  const Module = require("module");
  const { parse, stringify } = JSON;
  const { Promise, Error, Object, String, Buffer, process } = globalThis;

  const { Writable } = require("stream");

  const MAX_TEXT = 1 << 20;
  const MAX_FORM = 8 << 20;
  const MAX_ALL = 14 << 20;
  const DRAIN_MS = 200;
  const MAX_DRAINS = 10;
  const FORMS = ["html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript"];

  let sources = {};
  let request = 0;
  let interrupt = null; // rejects the running request; null between requests

  const parts = new Map();
  function use(name) {
    if (!parts.has(name)) {
      parts.set(name, new Script(sources[name], { filename: `<crannog ${name}>` }).runInThisContext());
    }
    return parts.get(name);
  }

  function writeAll(fd, data) {
    for (let at = 0; at < data.length; ) {
      try {
        at += writeSync(fd, data, at);
      } catch (e) {
        if (e.code !== "EAGAIN") throw e;
        // A program that shares the pipe has made it non-blocking.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      }
    }
  }

  // OutputStream is standard output or error. An interrupt in the middle of a
  // write would leave one of Node's own streams unusable.
  class OutputStream extends Writable {
    constructor(fd) {
      super({ decodeStrings: false });
      this.fd = fd;
      this.isTTY = undefined;
    }
    write(chunk, encoding, done) {
      if (typeof encoding === "function") [encoding, done] = [undefined, encoding];
      writeAll(this.fd, typeof chunk === "string" ? Buffer.from(chunk, encoding) : chunk);
      if (done) process.nextTick(done);
      return true;
    }
    end(chunk, encoding, done) {
      if (chunk !== undefined && typeof chunk !== "function") this.write(chunk, encoding);
      const last = [chunk, encoding, done].find((f) => typeof f === "function");
      if (last) process.nextTick(last);
      return this;
    }
    destroy() {
      return this;
    }
  }

  function send(message, ack) {
    message.n = request;
    if (ack) message.ack = true;
    writeAll(4, Buffer.from(stringify(message) + "\n"));
    if (ack && readSync(5, Buffer.alloc(1)) === 0) process.exit(1);
  }

  function cut(text) {
    return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… [${text.length - MAX_TEXT} characters left out]`;
  }

  function textOf(value) {
    if (typeof value === "string") {
      return inspect(value, { maxStringLength: Infinity, breakLength: Infinity }).slice(1, -1);
    }
    return inspect(value, { colors: false, depth: 4 });
  }

  function display(...values) {
    for (const value of values) {
      const message = { type: "result", is_main_result: false };
      const rich = value !== null && typeof value === "object" && FORMS.some((k) => value[k] !== undefined);
      if (rich) addForms(message, value);
      else message.text = cut(textOf(value));
      send(message, true);
    }
  }

  function addForms(message, value) {
    let total = 0;
    const leftOut = [];
    for (const k of FORMS) {
      let form = value[k];
      if (form === undefined || form === null) continue;
      if (form instanceof Uint8Array) form = Buffer.from(form).toString("base64");
      if (k !== "json") form = String(form);
      const size = stringify(form)?.length ?? 0;
      if (size > MAX_FORM || total + size > MAX_ALL) {
        leftOut.push(`${k} of ${size} bytes`);
        continue;
      }
      total += size;
      message[k] = form;
    }
    const text = value.text === undefined ? "" : cut(String(value.text));
    if (text || leftOut.length) {
      message.text = text + (leftOut.length ? `\n[left out, too large: ${leftOut.join(", ")}]` : "");
    }
  }

  // compile returns a script in which import() works.
  function compile(code, filename) {
    return new Script(code, {
      filename,
      importModuleDynamically: constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(resolve(name))),
    });
  }

  function resolve(name) {
    if (!/^[./]/.test(name)) return name;
    return require("url").pathToFileURL(require("path").resolve(name)).href;
  }

  function typescript(code) {
    if (typeof Module.stripTypeScriptTypes === "function") {
      const warn = process.emitWarning;
      process.emitWarning = () => {};
      try {
        return Module.stripTypeScriptTypes(code, { mode: "strip" });
      } finally {
        process.emitWarning = warn;
      }
    }
    try {
      use("rewrite").prepare(code, (text) => compile(text, "<check>"));
    } catch {
      const e = new Error(
        `TypeScript needs Node 22.13 or later, and this sandbox has ${process.version}. ` +
          "It runs code without type annotations only.",
      );
      e.name = "TypeScriptUnsupported";
      e.stack = `${e.name}: ${e.message}`;
      throw e;
    }
    return code;
  }

  async function run({ n, code, language }) {
    const filename = `<cell ${n}>`;
    if (language === "typescript") code = typescript(code);
    const { script, names } = use("rewrite").prepare(code, (text) => compile(text, filename));
    names.forEach(makeAssignable);
    const value = await Promise.race([
      script.runInThisContext({ breakOnSigint: true, displayErrors: false }),
      new Promise((_, reject) => (interrupt = reject)),
    ]);
    if (value !== undefined) send({ type: "result", text: cut(textOf(value)), is_main_result: true }, true);
  }

  // makeAssignable allows code to declare a name for which Node has a getter,
  // such as crypto.
  function makeAssignable(name) {
    const d = Object.getOwnPropertyDescriptor(globalThis, name);
    if (d && d.configurable && (d.get || d.set || !d.writable)) {
      Object.defineProperty(globalThis, name, { value: undefined, writable: true, configurable: true, enumerable: true });
    }
  }

  function report(e) {
    if (!(e instanceof Error) && !(e && typeof e.stack === "string")) {
      const text = cut(textOf(e));
      return send({ type: "error", name: "Uncaught", value: text, traceback: `Uncaught ${text}` });
    }
    send({ type: "error", name: String(e.name), value: cut(String(e.message)), traceback: cut(trace(e)) });
  }

  // trace returns the stack without the frames of the worker and of Node
  // below those of the code.
  function trace(e) {
    const lines = String(e.stack).split("\n");
    const end = lines.findIndex((l) => /^ {4}at .*(<crannog|node:vm|node:internal\/vm)/.test(l));
    const frames = end < 0 ? lines : lines.slice(0, end);
    while (frames.length > 1 && /^ {4}at .*\(?node:internal/.test(frames[frames.length - 1])) frames.pop();
    const cause = e.cause instanceof Error ? `\nCaused by: ${trace(e.cause)}` : "";
    return frames.join("\n") + cause;
  }

  // handleControl handles a request of the server that has no code.
  function handleControl(r) {
    request = r.n;
    try {
      if (r.renew) use("renewal").renew(r.renew, require);
    } catch {
      // Code has replaced functions that this needs. Its next cell will fail.
    }
    if (r.preload) send({ type: "done" });
  }

  // drain discards late interrupts. If an interrupt arrives when a script ends,
  // Node counts it for the next script that can be interrupted. Without one,
  // drain takes DRAIN_MS.
  function drain() {
    const wait = new Script(`Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${DRAIN_MS})`);
    for (let i = 0; i < MAX_DRAINS; i++) {
      try {
        wait.runInThisContext({ breakOnSigint: true });
        return;
      } catch {
        // There was a late interrupt, and there may be another one.
      }
    }
  }

  async function serve(r) {
    if (r.drain) return drain();
    if (r.renew || r.preload) return handleControl(r);
    request = r.n;
    const before = {};
    for (const [k, v] of Object.entries(r.env ?? {})) {
      before[k] = process.env[k];
      process.env[k] = v;
    }
    try {
      await run(r);
    } catch (e) {
      try {
        report(e);
      } catch {
        send({ type: "error", name: "Error", value: "", traceback: "The error could not be rendered." });
      }
    }
    interrupt = null;
    for (const [k, v] of Object.entries(before)) {
      if (v === undefined) delete process.env[k];
      else process.env[k] = v;
    }
    send({ type: "done" });
  }

  process.on("SIGINT", () => {
    const e = new Error("The execution was interrupted.");
    e.name = "InterruptedError";
    e.stack = `${e.name}: ${e.message}`;
    interrupt?.(e);
  });
  // Errors in the background must not end the worker.
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    process.on(event, (e) => writeAll(2, Buffer.from(`Uncaught ${e instanceof Error ? trace(e) : inspect(e)}\n`)));
  }

  Object.defineProperty(process, "stdout", { value: new OutputStream(1), configurable: true, enumerable: true });
  Object.defineProperty(process, "stderr", { value: new OutputStream(2), configurable: true, enumerable: true });
  globalThis.display = display;
  globalThis.require = Module.createRequire(process.cwd() + "/");

  let buffered = rest;
  let first = true;
  let last = Promise.resolve();
  const socket = new Socket({ fd: requests, readable: true, writable: false });
  function feed(chunk) {
    buffered = Buffer.concat([buffered, chunk]);
    for (let end; (end = buffered.indexOf(10)) >= 0; ) {
      const line = parse(buffered.subarray(0, end).toString());
      buffered = buffered.subarray(end + 1);
      if (first) {
        first = false;
        sources = line;
        use("rewrite");
        send({ type: "ready" });
      } else {
        last = last.then(() => serve(line));
      }
    }
  }
  socket.on("data", feed);
  socket.on("end", () => process.exit(0));
  feed(Buffer.alloc(0));
})
