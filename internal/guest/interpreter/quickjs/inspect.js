// Shows values as Node does, without its rarer forms.
(() => {
  "use strict";
  const { Object, String, Number, Array, Map, Set, Date, RegExp, Error, Promise, Symbol, JSON } = globalThis;
  const WIDTH = 72;
  const MAX_ITEMS = 100;
  const MAX_STRING = 10000;

  function quote(text) {
    const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes("`") ? "`" : "'";
    const escapes = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v", "\\": "\\\\" };
    return mark + text.replace(/[\n\r\t\b\f\v\\'"`]|[\x00-\x1f\x7f]/g, (c) =>
      escapes[c] ?? (c === mark ? `\\${c}` : /['"`]/.test(c) ? c : `\\x${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`)) + mark;
  }

  const keyText = (k) => (typeof k === "symbol" ? `[${String(k)}]` : /^[A-Za-z_$][\w$]*$/.test(k) ? k : quote(k));

  function className(value) {
    for (let o = value; o; o = Object.getPrototypeOf(o)) {
      const c = Object.getOwnPropertyDescriptor(o, "constructor")?.value;
      if (typeof c === "function" && c.name) return c.name;
    }
    return "[Object: null prototype]";
  }

  function primitive(value, nested) {
    switch (typeof value) {
      case "string": return quote(nested && value.length > MAX_STRING ? `${value.slice(0, MAX_STRING)}…` : value);
      case "bigint": return `${value}n`;
      case "number": return Object.is(value, -0) ? "-0" : String(value);
      default: return String(value);
    }
  }

  function functionText(f) {
    const kind = /^class\b/.test(Function.prototype.toString.call(f)) ? "class" : f.constructor?.name || "Function";
    return kind === "class" ? `[class ${f.name || "(anonymous)"}]` : `[${kind}${f.name ? `: ${f.name}` : " (anonymous)"}]`;
  }

  // layout puts items on one line if they fit, and else on a line each.
  function layout(prefix, open, items, close, indent) {
    if (!items.length) return `${prefix}${open}${close}`;
    const flat = `${prefix}${open} ${items.join(", ")} ${close}`;
    if (flat.length <= WIDTH && !flat.includes("\n")) return flat;
    const short = items.every((i) => i.length <= 6) && items.length > 6;
    const lines = [];
    if (short) for (let at = 0; at < items.length; at += 16) lines.push(items.slice(at, at + 16).join(", "));
    else lines.push(...items);
    return `${prefix}${open}\n${lines.map((l) => `${indent}  ${l}`).join(",\n")}\n${indent}${close}`;
  }

  function show(value, depth, indent, seen) {
    if (typeof value === "function" && !Object.keys(value).length) return functionText(value);
    if (value === null || (typeof value !== "object" && typeof value !== "function")) return primitive(value, seen.length > 0);
    if (seen.includes(value)) return "[Circular *1]";
    const name = className(value);
    if (value instanceof Error) {
      const stack = String(value.stack ?? "").trimEnd();
      const head = `${value.name}: ${value.message}`;
      return seen.length ? `[${head}]` : stack ? `${head}\n${stack}` : head;
    }
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return "Promise {}";
    if (seen.length > depth) return Array.isArray(value) ? "[Array]" : `[${name}]`;
    seen = [...seen, value];
    const sub = (v) => show(v, depth, `${indent}  `, seen);
    const more = (all, items) => (all > MAX_ITEMS ? [...items, `... ${all - MAX_ITEMS} more item${all - MAX_ITEMS > 1 ? "s" : ""}`] : items);
    const own = (skip) => Reflect.ownKeys(value).filter((k) => !skip(k) && Object.getOwnPropertyDescriptor(value, k)?.enumerable).map((k) => {
      const d = Object.getOwnPropertyDescriptor(value, k);
      const text = d.get || d.set ? `[${[d.get && "Getter", d.set && "Setter"].filter(Boolean).join("/")}]` : sub(d.value);
      return `${keyText(k)}: ${text}`;
    });
    const isIndex = (k) => typeof k === "string" && /^\d+$/.test(k);
    if (Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))) {
      const items = [];
      for (let i = 0; i < Math.min(value.length, MAX_ITEMS); i++) items.push(i in value ? sub(value[i]) : "<empty item>");
      const prefix = Array.isArray(value) && name === "Array" ? "" : `${name}(${value.length}) `;
      return layout(prefix, "[", [...more(value.length, items), ...own(isIndex)], "]", indent);
    }
    const none = () => false;
    if (value instanceof Map) {
      const items = [...value].slice(0, MAX_ITEMS).map(([k, v]) => `${sub(k)} => ${sub(v)}`);
      return layout(`${name}(${value.size}) `, "{", [...more(value.size, items), ...own(none)], "}", indent);
    }
    if (value instanceof Set) {
      return layout(`${name}(${value.size}) `, "{", [...more(value.size, [...value].slice(0, MAX_ITEMS).map(sub)), ...own(none)], "}", indent);
    }
    if (typeof value === "function") return layout(`${functionText(value)} `, "{", own(none), "}", indent);
    const items = own(none);
    return layout(name === "Object" ? "" : `${name} `, "{", more(items.length, items.slice(0, MAX_ITEMS)), "}", indent);
  }

  const inspect = (value, { depth = 2 } = {}) => show(value, depth ?? Infinity, "", []);
  return { inspect };
})()
