// The form for a new sandbox: its input, the request, and the field that each problem belongs to.

export interface Form {
  name: string;
  template: string;
  level: string;
  net: string;
  /** One host or host:port per line. */
  allow: string;
  policy: string;
  memory: string;
  cpu: string;
  pids: string;
  disk: string;
  timeout: string;
  /** One name=value per line. */
  metadata: string;
}

export const emptyForm: Form = {
  name: "",
  template: "",
  level: "",
  net: "none",
  allow: "",
  policy: "",
  memory: "",
  cpu: "",
  pids: "",
  disk: "",
  timeout: "",
  metadata: "",
};

export type FieldName = keyof Form;
export type FieldErrors = Partial<Record<FieldName, string>>;

export interface CreateBody {
  name?: string;
  template?: string;
  timeout_seconds?: number;
  metadata?: Record<string, string>;
  limits?: { memory_bytes?: number; cpu_millis?: number; pids?: number; disk_bytes?: number };
  access?: { level?: "strict" | "standard" | "light" | "minimal"; net?: "none" | "dev" | "open" | "policy"; allow?: string[]; policy?: string };
}

const units: Record<string, number> = { "": 1, k: 1 << 10, m: 1 << 20, g: 1 << 30, t: 2 ** 40 };

/** bytesOf parses 512M or 2 GiB. Null means invalid. */
export function bytesOf(text: string): number | null {
  const m = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(text.trim());
  const n = m ? Number(m[1]) * (units[(m[2] ?? "").toLowerCase()] ?? 1) : 0;
  return n > 0 && Number.isSafeInteger(Math.round(n)) ? Math.round(n) : null;
}

/** secondsOf parses 90s, 15m, 2h or 1h30m. Null means invalid: a number alone has no unit. */
export function secondsOf(text: string): number | null {
  const t = text.trim().replaceAll(/\s+/g, "");
  if (!/^(\d+(\.\d+)?[dhms])+$/i.test(t)) return null;
  let sum = 0;
  for (const part of t.matchAll(/(\d+(?:\.\d+)?)([dhms])/gi)) {
    sum += Number(part[1]) * { d: 86_400, h: 3600, m: 60, s: 1 }[(part[2] ?? "s").toLowerCase() as "d" | "h" | "m" | "s"];
  }
  return sum > 0 ? sum : null;
}

const linesOf = (text: string) =>
  text
    .split(/[\n,]/)
    .map((l) => l.trim())
    .filter((l) => l !== "");

/**
 * bodyOf parses the form into a request. An invalid field is an error and is never replaced by the
 * default.
 */
export function bodyOf(f: Form): { body: CreateBody; errors: FieldErrors } {
  const body: CreateBody = {};
  const errors: FieldErrors = {};
  if (f.name.trim()) body.name = f.name.trim();
  if (f.template.trim()) body.template = f.template.trim();
  if (f.timeout.trim()) {
    const s = secondsOf(f.timeout);
    if (s === null) errors.timeout = "Write a time with its unit, such as 90s, 15m or 2h";
    else body.timeout_seconds = s;
  }
  limitsOf(f, body, errors);
  const access: NonNullable<CreateBody["access"]> = {};
  if (f.level) access.level = f.level as NonNullable<typeof access.level>;
  if (f.net) access.net = f.net as NonNullable<typeof access.net>;
  const allow = linesOf(f.allow);
  if (allow.length > 0) {
    const invalid = allow.find((h) => /[\s/]/.test(h) || h.includes("://"));
    if (invalid) errors.allow = `"${invalid}" is not a host: write example.com or example.com:8443`;
    else access.allow = allow;
  }
  if (f.policy.trim()) access.policy = f.policy;
  if (allow.length > 0 && f.net === "none") errors.allow = "These hosts need a network: choose one above";
  if (Object.keys(access).length > 0) body.access = access;
  metadataOf(f, body, errors);
  return { body, errors };
}

function limitsOf(f: Form, body: CreateBody, errors: FieldErrors): void {
  const limits: NonNullable<CreateBody["limits"]> = {};
  for (const [field, name] of [["memory", "memory_bytes"], ["disk", "disk_bytes"]] as const) {
    if (!f[field].trim()) continue;
    const n = bytesOf(f[field]);
    if (n === null) errors[field] = "Write a size, such as 512M or 2G";
    else limits[name] = n;
  }
  if (f.cpu.trim()) {
    const n = Number(f.cpu);
    if (!(n > 0)) errors.cpu = "Write a number of processors, such as 0.5 or 2";
    else limits.cpu_millis = Math.round(n * 1000);
  }
  if (f.pids.trim()) {
    const n = Number(f.pids);
    if (!Number.isInteger(n) || n <= 0) errors.pids = "Write a whole number, such as 256";
    else limits.pids = n;
  }
  if (Object.keys(limits).length > 0) body.limits = limits;
}

function metadataOf(f: Form, body: CreateBody, errors: FieldErrors): void {
  const metadata: Record<string, string> = {};
  for (const line of f.metadata.split("\n").map((l) => l.trim())) {
    if (line === "") continue;
    const at = line.indexOf("=");
    if (at < 1) {
      errors.metadata = `"${line}" lacks a name and "=": write team=payments`;
      return;
    }
    metadata[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  if (Object.keys(metadata).length > 0) body.metadata = metadata;
}

// The codes and texts of the server's problems, and the fields that they belong to.
const byCode: [RegExp, FieldName][] = [
  [/name/, "name"],
  [/template|image|snapshot/, "template"],
  [/timeout|duration/, "timeout"],
  [/policy/, "policy"],
  [/net/, "net"],
  [/memory/, "memory"],
  [/cpu/, "cpu"],
  [/pids/, "pids"],
  [/disk/, "disk"],
  [/metadata/, "metadata"],
];

const byText: [RegExp, FieldName][] = [
  [/\bbody\.name\b|\bname\b.*\b(taken|use)/i, "name"],
  [/\btemplate\b/i, "template"],
  [/timeout_seconds/i, "timeout"],
  [/access\.allow|\bhost\b/i, "allow"],
  [/access\.level|\blevel\b/i, "level"],
  [/access\.net\b/i, "net"],
  [/access\.policy/i, "policy"],
  [/memory/i, "memory"],
  [/cpu/i, "cpu"],
  [/\bpids\b/i, "pids"],
  [/disk/i, "disk"],
  [/metadata/i, "metadata"],
];

/**
 * fieldFor returns the field of a problem. Null means the form as a whole: a problem shown at the
 * wrong field is worse than one shown above all fields.
 */
export function fieldFor(problem: { code: string; text: string }): FieldName | null {
  if (problem.code !== "invalid_request") {
    const hit = byCode.find(([p]) => p.test(problem.code));
    if (hit) return hit[1];
  }
  return byText.find(([p]) => p.test(problem.text))?.[1] ?? null;
}
