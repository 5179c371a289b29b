// The JavaScript worker on WebAssembly. The runner calls its functions: feed
// with each request, poll for timers, interrupted for code that waits. It
// copies the globals that it needs at the start, because code may replace them.
(() => {
  "use strict";
  const { host, Promise, Error, Object, String, Number, Uint8Array, Map, Date } = globalThis;
  const { parse, stringify } = JSON;
  const now = Date.now;
  delete globalThis.host;

  const MAX_TEXT = 1 << 20;
  const MAX_FORM = 8 << 20;
  const MAX_ALL = 14 << 20;
  const FORMS = ["html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript"];

  let sources = {};
  let deterministic = false;
  let request = 0;
  let running = 0; // requests that have not ended
  let interrupt = null; // rejects the running request; null between requests
  let last = Promise.resolve();

  const parts = new Map();
  function use(name) {
    if (!parts.has(name)) parts.set(name, host("eval", sources[name], `<crannog ${name}>`));
    return parts.get(name);
  }

  function send(message, ack) {
    message.n = request;
    if (ack) message.ack = true;
    host(ack ? "sendAndWait" : "send", stringify(message));
  }

  function cut(text) {
    return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… [${text.length - MAX_TEXT} characters left out]`;
  }

  const inspect = (value, options) => use("inspect").inspect(value, options);
  const textOf = (value) => (typeof value === "string" ? inspect(value).slice(1, -1) : inspect(value, { depth: 4 }));

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
      if (form instanceof Uint8Array) form = form.toBase64();
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

  // compile returns a script, or throws its syntax error.
  function compile(code, filename) {
    host("check", code, filename);
    return { run: () => host("eval", code, filename) };
  }

  async function run({ n, code }) {
    const filename = `<cell ${n}>`;
    const { script } = use("rewrite").prepare(code, (text) => compile(text, filename));
    const stopped = new Promise((_, reject) => (interrupt = reject));
    const value = await Promise.race([script.run(), stopped]);
    if (value !== undefined) send({ type: "result", text: cut(textOf(value)), is_main_result: true }, true);
  }

  // report reports an error. It returns true if code has used up its memory, so
  // that this context cannot be used any more.
  function report(e) {
    const full = host("memory") === "full";
    reportError(e, full ? " The context has used up its memory, and its state is lost." : "");
    return full;
  }

  function reportError(e, more) {
    if (!(e instanceof Error) && !(e && typeof e.stack === "string")) {
      const text = cut(textOf(e));
      return send({ type: "error", name: "Uncaught", value: text, traceback: `Uncaught ${text}` });
    }
    // These errors end all code, so the host throws others with their texts.
    const interrupted = e.message === "the execution was interrupted";
    const internal = /^InternalError: ([^]*)/.exec(e.message);
    const name = interrupted ? "InterruptedError" : internal ? "InternalError" : String(e.name);
    const value = cut(interrupted ? "The execution was interrupted." : internal ? internal[1] : String(e.message)) + more;
    send({ type: "error", name, value, traceback: cut(trace(name, value, e)) });
  }

  // trace returns the stack without the frames of the worker below those of
  // the code.
  function trace(name, value, e) {
    const lines = String(e.stack ?? "").split("\n").filter((l) => l.trim());
    const end = lines.findIndex((l) => /\(native\)|<crannog/.test(l));
    const frames = end < 0 ? lines : lines.slice(0, end);
    const cause = e.cause instanceof Error ? `\nCaused by: ${trace(String(e.cause.name), String(e.cause.message), e.cause)}` : "";
    return [`${name}: ${value}`, ...frames].join("\n") + cause;
  }

  // renew applies a new configuration of the sandbox to variables that code
  // has not changed. Sandboxes of this engine cannot be copied, so a seed does
  // not come.
  function renew({ env = {}, dir }) {
    const { process } = use("globals");
    for (const [name, { from, to }] of Object.entries(env)) {
      if (process.env[name] !== from) continue;
      if (to === undefined) delete process.env[name];
      else process.env[name] = to;
    }
    if (dir && process.cwd() === dir.from) process.chdir(dir.to);
  }

  async function serve(r) {
    request = r.n;
    if (r.renew || r.preload) {
      if (r.renew) renew(r.renew);
      if (r.preload) send({ type: "done" });
      return;
    }
    const { process } = use("globals");
    let full = false;
    const before = {};
    for (const [k, v] of Object.entries(r.env ?? {})) {
      before[k] = process.env[k];
      process.env[k] = v;
    }
    try {
      await run(r);
    } catch (e) {
      try {
        full = report(e);
      } catch {
        send({ type: "error", name: "Error", value: "", traceback: "The error could not be rendered." });
      }
    }
    interrupt = null;
    for (const [k, v] of Object.entries(before)) {
      if (v === undefined) delete process.env[k];
      else process.env[k] = v;
    }
    // The end of the worker ends the execution, so that the next one gets another worker.
    if (full) host("end");
    else send({ type: "done" });
  }

  function feed(line) {
    running++;
    last = last.then(() => serve(parse(line))).then(() => running--, (e) => {
      running--;
      host("err", `Uncaught ${String(e)}\n`);
    });
  }

  // poll runs the timer that is due first. It returns 0 if it ran one, or else
  // the milliseconds until the next one, or -1. Without a running request, the
  // clock of a deterministic context stands still.
  function poll() {
    if (deterministic && !running) return "-1";
    return String(use("globals").poll(now()));
  }

  function interrupted() {
    interrupt?.(new Error("the execution was interrupted"));
  }

  function start(texts, env, dir, fixed) {
    sources = parse(texts);
    deterministic = fixed === "true";
    use("globals").define({ host, env: parse(env), dir, inspect, now, display, fs: use("fs") });
    use("rewrite");
    use("inspect"); // it could not be loaded when the memory is used up
    send({ type: "ready" });
  }

  return { start, feed, poll, interrupted };
})()
