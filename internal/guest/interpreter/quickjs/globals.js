// Defines the globals that QuickJS lacks: console, timers, process, require.
(() => {
  "use strict";
  const { Object, String, Number, Error, Math, Map } = globalThis;

  const timers = new Map(); // id -> {due, every, call}
  let lastTimer = 0;
  let clock;

  function addTimer(call, delay, every, args) {
    if (typeof call !== "function") throw new TypeError("The callback of a timer must be a function");
    const ms = Math.max(1, Number(delay) || 0);
    timers.set(++lastTimer, { due: clock() + ms, every: every ? ms : 0, call: () => call(...args) });
    return lastTimer;
  }

  // poll runs the first timer that is due and returns 0. If none is due, it
  // returns the milliseconds until the next one, or -1.
  function poll(now) {
    let first = null;
    for (const [id, t] of timers) if (!first || t.due < first.t.due) first = { id, t };
    if (!first) return -1;
    if (first.t.due > now) return first.t.due - now;
    if (first.t.every) first.t.due = now + first.t.every;
    else timers.delete(first.id);
    first.t.call();
    return 0;
  }

  function format(inspect, args) {
    if (typeof args[0] !== "string") return args.map((a) => (typeof a === "string" ? a : inspect(a))).join(" ");
    let next = 1;
    const text = args[0].replace(/%[sdifjoOc%]/g, (mark) => {
      if (mark === "%%") return "%";
      if (next >= args.length) return mark;
      const a = args[next++];
      switch (mark) {
        case "%s": return typeof a === "string" ? a : inspect(a, { depth: 0 });
        case "%d": return String(Number(a));
        case "%i": return String(parseInt(a, 10));
        case "%f": return String(parseFloat(a));
        case "%j": return JSON.stringify(a);
        case "%c": return "";
        default: return inspect(a);
      }
    });
    return [text, ...args.slice(next).map((a) => (typeof a === "string" ? a : inspect(a)))].join(" ");
  }

  function makeConsole(host, inspect) {
    let indent = "";
    const counts = new Map();
    const starts = new Map();
    const print = (stream) => (...args) => {
      const text = format(inspect, args);
      host(stream, (indent ? text.replace(/^/gm, indent) : text) + "\n");
    };
    const out = print("out");
    const err = print("err");
    const elapsed = (name) => `${name}: ${(clock() - (starts.get(name) ?? clock())).toFixed(3)}ms`;
    return {
      log: out, info: out, debug: out, table: out, warn: err, error: err,
      dir: (value, options) => out(inspect(value, options)),
      trace: (...args) => err("Trace:", ...args),
      assert: (ok, ...args) => ok || err("Assertion failed", ...args),
      group: (...args) => { if (args.length) out(...args); indent += "  "; },
      groupEnd: () => { indent = indent.slice(2); },
      count: (name = "default") => { counts.set(name, (counts.get(name) ?? 0) + 1); out(`${name}: ${counts.get(name)}`); },
      time: (name = "default") => { starts.set(name, clock()); },
      timeLog: (name = "default") => out(elapsed(name)),
      timeEnd: (name = "default") => { out(elapsed(name)); starts.delete(name); },
    };
  }

  function makeProcess(host, env, dir) {
    let cwd = dir;
    return {
      env: Object.fromEntries(env.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])),
      argv: ["QuickJS"], platform: "wasi", arch: "wasm32", version: "QuickJS", versions: {},
      cwd: () => cwd,
      chdir: (to) => {
        const path = absolute(cwd, to);
        if (!JSON.parse(host("stat", path)).dir) throw new Error(`ENOTDIR: not a directory, chdir '${path}'`);
        cwd = path;
      },
      exit: () => { throw new Error("process.exit is not available: remove or restart the context instead"); },
      hrtime: Object.assign(() => [Math.floor(clock() / 1e3), (clock() % 1e3) * 1e6], { bigint: () => BigInt(clock()) * 1000000n }),
      nextTick: (call, ...args) => queueMicrotask(() => call(...args)),
      stdout: { write: (text) => { host("out", text); return true; } },
      stderr: { write: (text) => { host("err", text); return true; } },
    };
  }

  // absolute resolves a path.
  function absolute(cwd, path) {
    const names = [];
    for (const name of `${String(path).startsWith("/") ? "" : cwd}/${path}`.split("/")) {
      if (name === "..") names.pop();
      else if (name && name !== ".") names.push(name);
    }
    return "/" + names.join("/");
  }

  const api = { poll };

  api.define = ({ host, env, dir, inspect, now, display, fs }) => {
    clock = now;
    const process = (api.process = makeProcess(host, env, dir));
    const modules = { fs: fs.make(host, (path) => absolute(process.cwd(), path)), process, util: { inspect, format: (...a) => format(inspect, a) } };
    const require = (name) => {
      const found = modules[String(name).replace(/^node:/, "")];
      if (found) return found;
      const e = new Error(`Cannot find module '${name}': JavaScript on WebAssembly has fs, process and util only; packages need another engine`);
      e.code = "MODULE_NOT_FOUND";
      throw e;
    };
    const clear = (id) => { timers.delete(id); };
    const added = {
      console: makeConsole(host, inspect), process, require, display, global: globalThis,
      setTimeout: (call, delay, ...args) => addTimer(call, delay, false, args),
      setInterval: (call, delay, ...args) => addTimer(call, delay, true, args),
      setImmediate: (call, ...args) => addTimer(call, 0, false, args),
      clearTimeout: clear, clearInterval: clear, clearImmediate: clear,
    };
    for (const [name, value] of Object.entries(added)) {
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    }
  };
  return api;
})()
