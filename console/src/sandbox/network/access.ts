import { asFields, asList, outline, type Fields } from "../policy/outline";

/** The body of PUT /v1/sandboxes/{id}/access. */
export interface Access {
  level?: "strict" | "standard" | "light" | "minimal";
  net?: "none" | "dev" | "open" | "policy";
  allow?: string[];
  policy?: string;
  artifacts?: string[];
}

export interface Layer {
  kind: string;
  document: string;
}

/** A rule for one host, as a person requests it from a row of the network log. */
export interface RuleRequest {
  effect: "allow" | "deny";
  host: string;
  port: number;
}

export class CannotEdit extends Error {}

const denyAll = "policy: v1\nname: net/none\nnetwork:\n    unlisted: deny\n";

/**
 * Reconstructs the access that a sandbox was created with from the layers of its policy. A change
 * replaces all of it, so access that cannot be reconstructed exactly is refused: if a part were
 * missing, the change could allow what the part denied.
 */
export function accessOf(net: string, layers: readonly Layer[]): Access {
  if (net !== "dev" && net !== "open" && net !== "policy") {
    throw new CannotEdit("This sandbox was created without a network and cannot get one. Create another with a network.");
  }
  const access: Access = { net };
  const own: string[] = [];
  let none = false;
  for (const layer of layers) {
    if (layer.kind !== "task") continue;
    const fields = read(layer.document);
    const name = String(fields["name"] ?? "");
    const names = Object.keys(fields).join(" ");
    if (name === "level" && names === "policy name level") access.level = fields["level"] as NonNullable<Access["level"]>;
    else if (name === "net/hosts" && names === "policy name network") access.allow = hosts(fields);
    else if (name === "net/none" && layer.document.trim() === denyAll.trim()) none = true;
    else if (name === "artifacts" && names === "policy name filesystem") access.artifacts = artifacts(fields);
    else if (net === "dev" && name === "net/dev") continue;
    else if (net === "open" && (name === "net/open" || name === "net/open-files")) continue;
    else if (name.startsWith("net/")) throw new CannotEdit("Its network was set in a way that cannot be changed here.");
    else own.push(layer.document);
  }
  if (own.length > 1) throw new CannotEdit("Its policy has more than one document of its own.");
  const [document] = own;
  if (document !== undefined) access.policy = none ? withUnlistedDenied(document) : document;
  else if (none) access.policy = denyAll;
  if (access.policy?.includes("e2b.header.")) throw new CannotEdit("Its policy sets headers with values that cannot be read back.");
  return access;
}

/** The access with one more rule. */
export function withRule(access: Access, ruleRequest: RuleRequest): Access {
  const endpoint = `${ruleRequest.host}:${ruleRequest.port}`;
  if (!/^[a-z0-9*._-]+$/i.test(ruleRequest.host) || ruleRequest.port < 1 || ruleRequest.port > 65535) throw new CannotEdit("A rule cannot name this host.");
  const allow = (access.allow ?? []).filter((one) => one !== endpoint && !(ruleRequest.port === 443 && one === ruleRequest.host));
  if (ruleRequest.effect === "allow") {
    const wider: Access = { ...access, allow: [...allow, endpoint] };
    // A denial that was added here would override the list.
    if (access.policy !== undefined) wider.policy = withoutDenied(access.policy, ruleRequest);
    return wider;
  }
  const { allow: _, ...rest } = access;
  return { ...rest, ...(allow.length > 0 ? { allow } : {}), policy: withDenied(access.policy ?? "policy: v1\nname: console\n", ruleRequest) };
}

const denial = ["            - id: console-deny", "              do: deny"];

function withDenied(document: string, ruleRequest: RuleRequest): string {
  const lines = document.replace(/\n+$/, "").split("\n");
  const found = blockOf(lines, ruleRequest);
  if (found) {
    if (found.rules.length === 0 || found.denied) throw new CannotEdit("It is denied already.");
    if (found.ports.length > 1 || found.ports[0] !== String(ruleRequest.port)) throw new CannotEdit("Its policy has one block for several ports of this host.");
    const at = lines.indexOf("          rules:", found.from);
    let end = at + 1;
    while (/^ {12}/.test(lines[end] ?? "")) end++;
    // The denial replaces the other rules of the block: after it they would never be reached, which
    // the server refuses.
    return [...lines.slice(0, at + 1), ...denial, ...lines.slice(end), ""].join("\n");
  }
  const block = [`        - host: ${quoted(ruleRequest.host)}`, "          ports:", `            - ${ruleRequest.port}`, "          rules:", ...denial];
  const top = lines.indexOf("network:");
  if (top < 0) return [...lines, "network:", "    hosts:", ...block, ""].join("\n");
  for (let i = top + 1; i < lines.length && /^ /.test(lines[i] ?? ""); i++) {
    if (lines[i] === "    hosts:") return [...lines.slice(0, i + 1), ...block, ...lines.slice(i + 1), ""].join("\n");
  }
  return [...lines.slice(0, top + 1), "    hosts:", ...block, ...lines.slice(top + 1), ""].join("\n");
}

function withoutDenied(document: string, ruleRequest: RuleRequest): string {
  const lines = document.replace(/\n+$/, "").split("\n");
  const found = blockOf(lines, ruleRequest);
  if (!found?.denied) return document;
  lines.splice(found.from, found.to - found.from);
  // A block without rules and settings is an error.
  for (const name of ["    hosts:", "network:"]) {
    const at = lines.indexOf(name);
    const indent = name.length - name.trimStart().length;
    if (at >= 0 && !(lines[at + 1] ?? "").startsWith(" ".repeat(indent + 1))) lines.splice(at, 1);
  }
  return [...lines, ""].join("\n");
}

interface Block {
  /** Its first line, and the one after its last. */
  from: number;
  to: number;
  ports: string[];
  rules: Fields[];
  /** It is a denial that was added in the console. */
  denied: boolean;
}

/** The block that applies to a host at a port. */
function blockOf(lines: readonly string[], ruleRequest: RuleRequest): Block | undefined {
  const hostBlocks = asList(asFields(read(lines.join("\n"))["network"])["hosts"]).map(asFields);
  const head = `        - host: ${quoted(ruleRequest.host)}`;
  const top = lines.indexOf("network:");
  let at = top < 0 ? -1 : lines.indexOf(head, top);
  for (const block of hostBlocks) {
    if (block["host"] !== ruleRequest.host) continue;
    if (at < 0) throw new CannotEdit("Its policy can be changed only in the policy editor.");
    let to = at + 1;
    while (/^ {10}/.test(lines[to] ?? "")) to++;
    const ports = block["ports"] === undefined ? ["443"] : asList(block["ports"]).map(String);
    const rules = asList(block["rules"]).map(asFields);
    // A range of ports may include the port too. Such a block can be changed only in the policy
    // editor.
    if (ports.includes(String(ruleRequest.port)) || ports.some((port) => port.includes("-"))) {
      return { from: at, to, ports, rules, denied: rules.length === 1 && rules[0]?.["id"] === "console-deny" };
    }
    at = lines.indexOf(head, to);
  }
  return undefined;
}

/** Denies unlisted hosts in the document itself. A second document would deny everything else. */
function withUnlistedDenied(document: string): string {
  const lines = document.replace(/\n+$/, "").split("\n");
  const top = lines.indexOf("network:");
  if (top < 0) return [...lines, "network:", "    unlisted: deny", ""].join("\n");
  const set = lines.findIndex((line, i) => i > top && /^ {4}unlisted: /.test(line));
  if (set >= 0) lines[set] = "    unlisted: deny";
  else lines.splice(top + 1, 0, "    unlisted: deny");
  return [...lines, ""].join("\n");
}

function read(document: string): Fields {
  try {
    return outline(document);
  } catch {
    throw new CannotEdit("Its policy can be changed only in the policy editor.");
  }
}

function hosts(fields: Fields): string[] {
  return asList(asFields(fields["network"])["hosts"]).map(asFields).flatMap((block) => {
    const names = typeof block["host"] === "string" ? [block["host"]] : asList(block["addresses"]).map(String);
    return names.flatMap((name) => asList(block["ports"]).map((port) => `${name.includes(":") ? `[${name}]` : name}:${String(port)}`));
  });
}

function artifacts(fields: Fields): string[] {
  return asList(asFields(asFields(fields["filesystem"])["export"])["only"]).map(String);
}

function quoted(host: string): string {
  return host.startsWith("*") ? `'${host}'` : host;
}

/** Describes access in lines of text. */
export function accessLines(access: Access): string[] {
  return [
    `network: ${access.net ?? ""}`,
    ...(access.level ? [`level: ${access.level}`] : []),
    ...(access.allow ?? []).map((host) => `allow: ${host}`),
    ...(access.artifacts ?? []).map((glob) => `artifact: ${glob}`),
    ...(access.policy ? ["policy document:", ...access.policy.trimEnd().split("\n").map((line) => `  ${line}`)] : []),
  ];
}

export interface DraftLine {
  kind: "added" | "removed" | "same";
  text: string;
}

/** Compares two texts, and marks the lines that only one of them has. */
export function diffLines(before: readonly string[], after: readonly string[]): DraftLine[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const a = before.slice(head, before.length - tail);
  const b = after.slice(head, after.length - tail);
  const line = (kind: DraftLine["kind"]) => (text: string): DraftLine => ({ kind, text });
  return [
    ...before.slice(0, head).map(line("same")),
    ...diffMiddle(a, b),
    ...before.slice(before.length - tail).map(line("same")),
  ];
}

function diffMiddle(a: readonly string[], b: readonly string[]): DraftLine[] {
  // The longest common subsequence of lines, by the table of lengths.
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  const at = (i: number, j: number) => longest[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) longest[i]![j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  }
  const out: DraftLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && a[i] === b[j]) {
      out.push({ kind: "same", text: a[i++] ?? "" });
      j++;
    } else if (j >= b.length || (i < a.length && at(i + 1, j) >= at(i, j + 1))) out.push({ kind: "removed", text: a[i++] ?? "" });
    else out.push({ kind: "added", text: b[j++] ?? "" });
  }
  return out;
}
