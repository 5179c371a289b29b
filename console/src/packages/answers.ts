// The answers of the package gate, as entries of the audit log.
import { dataOf, type Entry } from "../record/entry";
import { nameOf } from "./cache";
import { verdicts, type PackageSearch, type Verdict } from "./search";

/** One answer. Sandboxes and registries chose most of its texts: show them with Inert. */
export interface Answer {
  seq: number;
  time: string;
  sandbox: string;
  ecosystem: string;
  name: string;
  version: string;
  verdict: Verdict;
  /** Nothing was fetched for the answer. */
  cached: boolean;
  rule: string;
  reason: string;
  /** Versions that were removed from what the registry says. */
  withheld: string[];
  /** Scripts that the version runs when it is installed. */
  scripts: string[];
  /** What an inspection of the content found. */
  findings: string[];
}

const text = (v: unknown) => (typeof v === "string" ? v.slice(0, 2000) : "");
const list = (v: unknown) => (Array.isArray(v) ? v.filter((one): one is string => typeof one === "string").slice(0, 50) : []);

/**
 * answerOf returns the answer in an entry, or null if there is none. The gateway wrote the entry,
 * and a sandbox may have taken the gateway over, so every field is checked.
 */
export function answerOf(e: Entry): Answer | null {
  if (e.kind !== "flow") return null;
  const d = dataOf(e);
  const fact = d["package"];
  // The final entry of an action has the same fact as the one at its beginning.
  if (d["begins"] === true || typeof fact !== "object" || fact === null || Array.isArray(fact)) return null;
  const f = fact as Record<string, unknown>;
  const verdict = verdicts.find((v) => v === f["verdict"]);
  if (!verdict) return null;
  return {
    seq: e.seq, time: e.time, sandbox: e.sandbox ?? "", verdict, cached: f["cached"] === true,
    ecosystem: text(f["ecosystem"]), name: text(f["name"]), version: text(f["version"]),
    rule: text(d["rule"]), reason: text(d["reason"]), withheld: list(f["withheld"]), scripts: list(f["scripts"]), findings: list(f["findings"]),
  };
}

/** matchesAnswer reports whether an entry is an answer that the filter selects. */
export function matchesAnswer(e: Entry, search: Pick<PackageSearch, "q" | "ecosystem" | "verdict">): boolean {
  const a = answerOf(e);
  if (!a) return false;
  if (search.verdict && a.verdict !== search.verdict) return false;
  if (search.ecosystem && a.ecosystem !== search.ecosystem) return false;
  const hay = `${nameOf(a)} ${a.rule} ${a.reason} ${a.sandbox}`.toLowerCase();
  return (search.q ?? "").toLowerCase().split(/\s+/).every((term) => hay.includes(term));
}

/** sourceOf says where an answer came from. */
export function sourceOf(a: Answer): string {
  if (a.verdict === "refused") return "not served";
  return a.cached ? "cache" : "registry";
}
