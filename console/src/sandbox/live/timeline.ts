import { asData, commandLine, number, text, texts, type Data } from "./data";

/** The kinds of the items of the timeline, which are also the values of its filter. */
export const kinds = ["commands", "files", "network", "approvals", "lifecycle", "people"] as const;
export type Kind = (typeof kinds)[number];

export interface EntryLike {
  seq: number;
  time: string;
  kind: string;
  actor?: string | undefined;
  data?: unknown;
}

export interface FlowLike {
  time: string;
  seq: number;
  kind: string;
  effect: string;
  rule: string;
  method?: string | undefined;
  host?: string | undefined;
  port?: number | undefined;
  path?: string | undefined;
  status?: number | undefined;
  reason?: string | undefined;
}

export type Tone = "ok" | "warn" | "bad" | "info" | "quiet";

/** One row of the timeline. Title and detail contain text that a sandbox chose. */
export interface Item {
  key: string;
  kind: Kind;
  at: number;
  time: string;
  /** The audit entry of the item, if it exists yet. */
  seq?: number;
  label: string;
  title: string;
  detail: string;
  tone: Tone;
  /** For a request: allow, deny or ask. */
  effect?: string;
  actor?: string;
  /** For a request that was not allowed: the reason. */
  why?: string;
  /** For files that changed together: the other paths. */
  more?: string[];
  /** A program that a command started. */
  nested?: boolean;
  /** The number of the command's recording. */
  recording?: number;
}

/**
 * Merges the entries, and the flows that are not in the audit log yet, into one timeline. A flow
 * with an entry is shown once, as that entry.
 */
export function merge(entries: readonly EntryLike[], flows: readonly FlowLike[]): Item[] {
  const items = new Map<string, Item>();
  const running = new Map<string, Item>();
  for (const entry of [...entries].sort((a, b) => a.seq - b.seq)) {
    const item = itemOf(entry, running);
    if (item) items.set(item.key, item);
  }
  for (const flow of flows) {
    const item = flowItem(flow);
    if (!items.has(item.key)) items.set(item.key, item);
  }
  return grouped([...items.values()].sort((a, b) => a.at - b.at || (a.seq ?? Infinity) - (b.seq ?? Infinity)));
}

function newItem(entry: EntryLike, kind: Kind, label: string, title: string, tone: Tone = "quiet", detail = ""): Item {
  return {
    key: `e${entry.seq}`, kind, label, title, detail, tone, at: Date.parse(entry.time), time: entry.time, seq: entry.seq,
    ...(entry.actor ? { actor: entry.actor } : {}),
  };
}

function itemOf(entry: EntryLike, running: Map<string, Item>): Item | undefined {
  const data = asData(entry.data);
  switch (entry.kind) {
    case "command.started":
      return commandStarted(entry, data, running);
    case "command.ended":
      return commandEnded(entry, running.get(`n${number(data, "n")}`), data, number(data, "exit"), number(data, "duration_ms"));
    case "exec": {
      const item = newItem(entry, "commands", "program", commandLine(texts(data, "argv")) || text(data, "program"));
      item.nested = true;
      running.set(`p${number(data, "pid")}`, item);
      return item;
    }
    case "exit": {
      const took = number(data, "took_ns");
      const start = running.get(`p${number(data, "pid")}`);
      running.delete(`p${number(data, "pid")}`);
      return start ? commandEnded(entry, start, data, number(data, "code") ?? 0, took === undefined ? undefined : took / 1e6) : undefined;
    }
    case "file":
      return newItem(entry, "files", text(data, "op") || "changed", text(data, "path"), text(data, "op") === "removed" ? "warn" : "quiet");
    case "flow": {
      const item = flowItem(data as unknown as FlowLike);
      return { ...item, seq: entry.seq, at: Date.parse(entry.time), time: entry.time };
    }
    case "gap":
      return newItem(entry, "lifecycle", "gap", "Events were not seen", "warn", text(data, "reason"));
    case "limit.hit":
      return newItem(entry, "lifecycle", "limit", `The limit of ${text(data, "limit")} was hit`, "bad");
    case "policy.changed":
      return newItem(entry, "lifecycle", "policy", "The policy was changed", "info", [text(data, "new_level"), text(data, "new").replace(/^sha256:/, "").slice(0, 8)].join(" "));
    case "terminal.control": {
      const from = text(data, "displaced");
      const what = text(data, "do") === "take" ? "Took control of" : data["left"] === true ? "Left and released" : "Released";
      return newItem(entry, "people", "control", `${what} terminal ${number(data, "pid") ?? ""}`, from ? "warn" : "quiet", from && `from ${from}`);
    }
    case "export":
      return newItem(entry, "files", "exported", text(data, "do") || "Changes left the sandbox", "info");
    case "action":
      return newItem(entry, "people", text(data, "do").replace(/^(file|changes)\./, ""), actionTitle(data), text(data, "outcome") === "ok" ? "quiet" : "bad", text(data, "outcome") === "ok" ? "" : text(data, "outcome"));
  }
  if (entry.kind.startsWith("approval.")) return approval(entry, data);
  if (entry.kind.startsWith("sandbox.") || entry.kind.startsWith("snapshot.")) return lifecycleItem(entry, data);
  return newItem(entry, "lifecycle", entry.kind, entry.kind);
}

function commandStarted(entry: EntryLike, data: Data, running: Map<string, Item>): Item {
  const language = text(data, "language");
  const item = newItem(entry, "commands", language ? "cell" : "command", language ? text(data, "code") : commandLine(texts(data, "argv")), "info");
  const n = number(data, "n");
  if (text(data, "how") === "connect") item.title ||= `follows process ${number(data, "pid") ?? "?"}`;
  if (n !== undefined) {
    item.recording = n;
    running.set(`n${n}`, item);
  }
  return item;
}

/**
 * Joins the end of a command with its beginning. Without a beginning, the end is an item of its
 * own.
 */
function commandEnded(entry: EntryLike, start: Item | undefined, data: Data, exit: number | undefined, ms: number | undefined): Item | undefined {
  const how = text(data, "error") || (data["lost"] === true ? "lost" : data["timed_out"] === true ? "timed out" : exit === undefined ? "ended" : `exit ${exit}`);
  const detail = ms === undefined ? how : `${how} · ${duration(ms)}`;
  if (!start) return newItem(entry, "commands", "ended", `Command ${number(data, "n") ?? ""}`, exit === 0 ? "quiet" : "bad", detail);
  start.detail = detail;
  if (exit === 0) start.tone = start.nested ? "quiet" : "ok";
  else start.tone = start.nested ? "warn" : "bad";
  return undefined;
}

function approval(entry: EntryLike, data: Data): Item {
  const what = entry.kind.slice("approval.".length);
  const state = text(data, "state") || what;
  const tone: Tone = state === "approved" || state === "spent" ? "ok" : state === "denied" || state === "expired" ? "bad" : "warn";
  const facts = asData(data["facts"]);
  const where = [text(facts, "host"), text(facts, "port")].filter(Boolean).join(":");
  return newItem(entry, "approvals", what, [text(data, "kind"), where].filter(Boolean).join(" "), tone, text(data, "reason") || text(data, "rule"));
}

const lifecycleTitles: Readonly<Record<string, string>> = {
  "sandbox.started": "Started", "sandbox.ended": "Ended", "sandbox.paused": "Paused", "sandbox.resumed": "Resumed",
  "sandbox.replaced": "Restored", "sandbox.copied": "Copied", "snapshot.taken": "Snapshot taken", "snapshot.removed": "Snapshot removed",
};

function lifecycleItem(entry: EntryLike, data: Data): Item {
  const copies = texts(data, "copies");
  const detail = text(data, "reason") || text(data, "snapshot") || text(data, "name") || text(data, "id") || copies.join(" ") || text(data, "template");
  const bad = entry.kind === "sandbox.ended" && ["oom", "crashed", "lost"].includes(text(data, "reason"));
  return newItem(entry, "lifecycle", entry.kind.split(".")[1] ?? "", lifecycleTitles[entry.kind] ?? entry.kind, bad ? "bad" : "info", detail);
}

const actionTitles: Readonly<Record<string, string>> = {
  create: "Created the sandbox", remove: "Stopped the sandbox", timeout: "Set its time limit", extend: "Extended its time limit", access: "Changed its network access",
  pause: "Paused it", resume: "Resumed it", fork: "Forked it", rollback: "Rolled back to a snapshot", reset: "Reset to its start",
  snapshot: "Took a snapshot", "snapshot.remove": "Removed a snapshot", "changes.keep": "Retained its changes",
};

function actionTitle(data: Data): string {
  const to = text(data, "to");
  const what = text(data, "do");
  return [text(data, "path") || actionTitles[what] || text(data, "ref") || what, to && `to ${to}`].filter(Boolean).join(" ");
}

function flowItem(flow: FlowLike): Item {
  const effect = String(flow.effect);
  return {
    key: `f${flow.seq}`, kind: flow.kind === "link" ? "lifecycle" : "network", at: Date.parse(flow.time), time: flow.time,
    label: flow.kind, title: flow.kind === "link" ? (flow.reason ?? "link") : endpoint(flow), effect, detail: flow.rule,
    ...(effect !== "allow" && flow.reason ? { why: flow.reason } : {}),
    tone: effect === "allow" ? "quiet" : effect === "ask" ? "warn" : "bad",
  };
}

/** The destination of a request, on one line. */
export function endpoint(flow: Pick<FlowLike, "method" | "host" | "port" | "path">): string {
  const usual = flow.port === undefined || flow.port === 443 || flow.port === 0;
  return [flow.method, `${flow.host ?? ""}${usual ? "" : `:${flow.port}`}${flow.path ?? ""}`].filter(Boolean).join(" ");
}

/** Joins files that changed together, and lookups of one name, into one row. */
function grouped(items: Item[]): Item[] {
  const out: Item[] = [];
  for (const item of items) {
    const last = out.at(-1);
    if (item.kind === "files" && item.seq !== undefined && last?.kind === "files" && last.label === item.label && item.at - last.at < 2000) {
      last.more = [...(last.more ?? []), item.title];
    } else if (last && sameLookup(last, item)) {
      last.title = `${item.title.split(" ")[0]}, ${last.title}`;
    } else {
      out.push({ ...item });
    }
  }
  return out;
}

/** Reports whether two rows are lookups of one name for its two kinds of addresses. */
function sameLookup(a: Item, b: Item): boolean {
  const [method = "", host = ""] = b.title.split(" ");
  return a.label === "dns" && b.label === "dns" && a.effect === b.effect && b.at - a.at < 2000 && a.title.endsWith(` ${host}`) && !a.title.split(/,? /).includes(method);
}

/** Keeps the kinds that a filter names; an empty filter keeps all. */
export function filtered(items: readonly Item[], only: readonly Kind[], programs: boolean): Item[] {
  return items.filter((item) => (only.length === 0 || only.includes(item.kind)) && (programs || !item.nested));
}

export function duration(ms: number): string {
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}
