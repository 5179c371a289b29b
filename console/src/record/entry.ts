// An audit entry for people, on one line and in words.

import type { Entry as APIEntry } from "../api/console";

/** One entry of the audit log, with unchecked data. */
export type Entry = Omit<APIEntry, "data"> & { data?: unknown };

/** Every kind, in the groups that the filter shows. */
export const kindGroups: readonly { name: string; kinds: readonly string[] }[] = [
  { name: "Actions", kinds: ["action"] },
  { name: "Sandboxes", kinds: ["sandbox.started", "sandbox.ended", "sandbox.paused", "sandbox.resumed", "sandbox.replaced", "sandbox.copied", "limit.hit"] },
  { name: "Snapshots", kinds: ["snapshot.taken", "snapshot.removed"] },
  { name: "Commands", kinds: ["command.started", "command.ended", "terminal.control", "exec", "exit"] },
  { name: "Files", kinds: ["file", "export", "provenance.signed"] },
  { name: "Network", kinds: ["flow"] },
  { name: "Approvals", kinds: ["approval.asked", "approval.voted", "approval.decided", "approval.spent"] },
  { name: "Policy and secrets", kinds: ["policy.changed", "secret.stored", "secret.removed", "key.made", "key.revoked"] },
  { name: "Console", kinds: ["console.invited", "console.signed_in", "console.signed_out"] },
  { name: "Server", kinds: ["server.started", "server.stopped", "record.truncated", "gap"] },
];

type Data = Record<string, unknown>;

/** dataOf returns an entry's data as an object; other data becomes an empty one. */
export function dataOf(e: Entry): Data {
  return typeof e.data === "object" && e.data !== null && !Array.isArray(e.data) ? (e.data as Data) : {};
}

function text(v: unknown): string {
  if (v === undefined || v === null) return "";
  if (typeof v === "string") return v;
  if (Array.isArray(v)) return v.map(text).join(" ");
  return typeof v === "object" ? JSON.stringify(v) : String(v);
}

const join = (...parts: (string | false | undefined)[]) => parts.filter(Boolean).join(" ");
const named = (word: string, v: unknown) => (text(v) === "" ? "" : `${word} ${text(v)}`);

/**
 * summaryOf describes an entry on one line. A program chose much of the text: a component that
 * shows it passes it through Inert.
 */
export function summaryOf(e: Entry): string {
  const d = dataOf(e);
  switch (e.kind) {
    case "action":
      return join(text(d["do"]), text(d["path"]), text(d["ref"]), d["outcome"] !== "ok" && `refused: ${text(d["outcome"])}`, d["count"] !== undefined && `and ${text(d["count"])} more`);
    case "sandbox.started":
      return join(text(d["name"]), named("from", d["template"]), named("on", d["engine"]), named("level", d["level"]), named("net", d["net"]));
    case "sandbox.ended":
    case "sandbox.paused":
    case "sandbox.resumed":
      return join(text(d["reason"]), d["files_only"] === true && "files only");
    case "sandbox.replaced":
      return named("back to", d["snapshot"] ?? "its start");
    case "sandbox.copied":
      return named("into", d["copies"]);
    case "limit.hit":
      return join(text(d["limit"]), named("at most", d["most"]));
    case "snapshot.taken":
    case "snapshot.removed":
      return join(text(d["id"]), text(d["name"]));
    case "command.started":
    case "exec":
      // A cell has code instead of a program.
      return d["code"] === undefined ? text(d["argv"] ?? d["program"]) : join(named("cell", d["language"]), text(d["code"]));
    case "command.ended":
    case "exit":
      return endOf(d);
    case "file":
      return join(text(d["op"]), text(d["path"]));
    case "export":
      return join(named("to", d["to"]), named("files", d["files"]), named("removals", d["deletions"]), named("rule", d["rule"]));
    case "gap":
      return join(named("not seen:", d["of"]), named("lost", d["lost"]), text(d["reason"]));
    case "flow":
      return join(text(d["effect"]), text(d["method"]), text(d["host"]) + text(d["path"]), named("rule", d["rule"]));
    case "approval.asked":
    case "approval.voted":
    case "approval.decided":
    case "approval.spent":
      return join(text(d["id"]), text(d["kind"]), voteOf(d), text(d["state"]), named("rule", d["rule"]));
    case "policy.changed":
      return join(`${text(d["old_level"])} → ${text(d["new_level"])}`, named("net", d["net"]));
    case "secret.stored":
    case "secret.removed":
      return join(text(d["do"]), text(d["name"]));
    case "key.made":
    case "key.revoked":
      return join(text(d["id"]), text(d["name"]));
    case "terminal.control":
      return join(text(d["do"]), named("of process", d["pid"]), named("from", d["displaced"]), d["left"] === true && "by leaving");
    case "console.invited":
    case "console.signed_in":
    case "console.signed_out":
      return join(text(d["scope"]), text(d["session"]), text(d["name"]), text(d["reason"]));
    case "provenance.signed":
      return join(named("subjects", d["subjects"]), named("key", d["key"]));
    case "server.started":
    case "server.stopped":
      return join(text(d["version"]), text(d["engine"]), named("process", d["pid"]));
    case "record.truncated":
      return named("first that is kept:", d["first"]);
    default:
      return text(e.data);
  }
}

function endOf(d: Data): string {
  const code = d["exit"] ?? d["code"];
  const how = text(d["error"]) !== "" ? `failed: ${text(d["error"])}` : d["signal"] ? `ended by signal ${text(d["signal"])}` : named("exit code", code);
  const end = join(how, d["hit"] !== undefined && `reached the limit ${text(d["hit"])}`, d["lost"] === true && "the end was not received");
  // An absent exit code is different from zero.
  return end === "" ? "no exit code" : end;
}

function voteOf(d: Data): string {
  if (d["granted"] === undefined) return "";
  return d["granted"] === true ? "yes" : "no";
}

/** toneOf marks entries that need attention. */
export function toneOf(e: Entry): "bad" | "warn" | "ok" | "quiet" {
  const d = dataOf(e);
  if (e.kind === "gap" || e.kind === "limit.hit") return "warn";
  if (e.kind === "action" && d["outcome"] !== undefined && d["outcome"] !== "ok") return "bad";
  if (e.kind === "flow" && d["effect"] === "deny") return "bad";
  if (e.kind === "approval.decided") return d["state"] === "approved" ? "ok" : "bad";
  if (e.kind === "sandbox.ended" && ["oom", "crashed", "lost"].includes(text(d["reason"]))) return "bad";
  return "quiet";
}
