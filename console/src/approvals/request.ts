// Describes an approval request to a person: what will happen, how long an approval is valid, and
// which words are the agent's.
import type { Expiring } from "./inbox";

export interface Vote {
  who: string;
  granted: boolean;
  reason?: string;
  at: string;
}

/** An approval request as the API returns it. */
export interface ApprovalRequest extends Expiring {
  sandbox: string;
  kind: string;
  summary: string;
  facts: Record<string, string>;
  rule: string;
  policy: string;
  state: string;
  reason?: string;
  quorum: number;
  votes: readonly Vote[] | null;
  always?: string;
  amendment?: string;
  decided_at?: string;
  spent_at?: string;
}

const kinds: Record<string, string> = {
  "net.host": "Reach a host",
  "net.request": "Send a request",
  "pkg.publish": "Publish a package",
  "git.push": "Push to a repository",
  "secret.use": "Use a secret",
  "policy.widen": "Change its policy",
  "fs.export": "Take files out",
  "fs.delete": "Remove files outside",
};

export function kindName(kind: string): string {
  return kinds[kind] ?? kind;
}

// The server appends the reason that a caller of the API or of MCP gave after this text.
const agentMark = ". The agent says (unchecked): ";

export interface Parts {
  /** The server's own description. */
  what: string;
  /** The agent's own words, which are not checked. */
  agent: string;
}

/**
 * partsOf separates the agent's own words from the summary. Only requests of one rule have them: in
 * others the same words may be part of a path that a program chose, and must not end the line about
 * the effect.
 */
export function partsOf(q: ApprovalRequest): Parts {
  const at = q.rule === "access.request" ? q.summary.indexOf(agentMark) : -1;
  if (at < 0) return { what: q.summary, agent: "" };
  return { what: q.summary.slice(0, at), agent: q.summary.slice(at + agentMark.length) };
}

export interface Fact {
  name: string;
  value: string;
  /** Whether the value means nothing to a person, such as a hash. */
  dim: boolean;
}

const factOrder = ["method", "target", "covers", "body", "host", "port", "path", "wider", "action", "kind", "package", "version", "registry", "repo", "git", "secret", "to", "files", "deletions", "paths", "asked_by"];

/** factsOf sorts facts that matter to a person first, and hashes last. */
export function factsOf(q: ApprovalRequest): Fact[] {
  const rank = (name: string) => {
    const position = factOrder.indexOf(name);
    if (position >= 0) return position;
    return isDim(name) ? factOrder.length + 1 : factOrder.length;
  };
  return Object.entries(q.facts)
    .map(([name, value]) => ({ name, value, dim: isDim(name) || (name === "to" && q.kind === "policy.widen") }))
    .toSorted((a, b) => rank(a.name) - rank(b.name) || (a.name < b.name ? -1 : 1));
}

function isDim(name: string): boolean {
  return name.endsWith("_sha256") || name === "digest" || name === "generation" || name === "tls";
}

/** lastsOf describes what an approval allows, and for how long. */
export function lastsOf(q: ApprovalRequest): string {
  if (q.kind === "policy.widen") return "The policy stays changed until a person changes it back or the sandbox ends.";
  // A request without a body hash covers all uses of the secret; one with it covers that request.
  if (q.kind === "secret.use" && q.facts["body_sha256"] === undefined) {
    return "Later uses of this secret at this host need no approval, until its value changes or the sandbox ends.";
  }
  if (q.facts["git"] === "fetch" && q.facts["covers"]) return "Requests of git that fetch from this repository are allowed for ten minutes. Other requests are not.";
  if (q.kind === "net.host") return "One connection to this host and port, with all data on it unless another rule asks.";
  return "This request, once. A request that differs in one fact needs another approval.";
}

/** alwaysText describes the effect of a host that is allowed permanently. */
export const alwaysText = "Later requests there need no approval, with any method and path, unless another rule asks or denies.";

/**
 * rememberText describes what a permanent permission would add. It is empty if the approval lasts
 * anyway.
 */
export function rememberText(q: ApprovalRequest): string {
  if (q.kind === "policy.widen") return "";
  if (q.always) return `Always allowing it adds ${q.always} to this sandbox's policy. ${alwaysText}`;
  if (q.rule.startsWith("host:")) return "It cannot be remembered, because its rule always requires an approval.";
  if (q.quorum > 1) return "It cannot be remembered, because several people must agree each time.";
  return "It cannot be remembered, because it is about more than one exact host.";
}

export interface Count {
  given: number;
  needed: number;
  text: string;
}

/** votesOf counts the people who approved, each once, as the server does. */
export function votesOf(q: ApprovalRequest): Count {
  const people = new Set((q.votes ?? []).filter((v) => v.granted).map((v) => v.who));
  const needed = Math.max(q.quorum, 1);
  return { given: people.size, needed, text: `${people.size} of ${needed} approved` };
}

/** sameRule returns the requests of the same rule and kind. */
export function sameRule<T extends ApprovalRequest>(all: readonly T[], q: ApprovalRequest): T[] {
  return all.filter((each) => each.rule === q.rule && each.kind === q.kind);
}

/** pastOf describes how requests of the same rule were decided lately; empty if none were. */
export function pastOf(decided: readonly ApprovalRequest[], q: ApprovalRequest): string {
  const similar = sameRule(decided, q).filter((each) => each.id !== q.id);
  const count = (states: readonly string[]) => similar.filter((each) => states.includes(each.state)).length;
  const parts = [
    [count(["approved", "spent"]), "approved"],
    [count(["denied"]), "denied"],
    [count(["expired"]), "not decided"],
  ] as const;
  const counts = parts.filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`);
  return counts.length === 0 ? "" : `Earlier decisions of this rule: ${counts.join(", ")}.`;
}
