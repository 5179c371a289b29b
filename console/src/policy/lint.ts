// The server's findings about a document, and its decision about a request.

export interface Finding {
  line: number;
  column?: number;
  path?: string;
  text: string;
  severity: string;
}

/** The response of POST /console/api/policy/lint. */
export interface LintResult {
  ok: boolean;
  problems: Finding[] | null;
}

export interface Range {
  from: number;
  to: number;
  severity: "error" | "warning" | "info";
  text: string;
  line: number;
}

/**
 * rangesOf converts findings to positions in the text. The text may have changed since it was
 * checked: a position beyond its end becomes its end.
 */
export function rangesOf(text: string, problems: readonly Finding[]): Range[] {
  const lines = text.split("\n");
  const starts: number[] = [];
  let offset = 0;
  for (const l of lines) {
    starts.push(offset);
    offset += l.length + 1;
  }
  return problems.map((p) => {
    const index = Math.min(Math.max(p.line, 1), lines.length) - 1;
    const line = lines[index] ?? "";
    const start = starts[index] ?? 0;
    const indent = line.length - line.trimStart().length;
    const column = p.column && p.column > 0 ? Math.min(p.column - 1, line.length) : indent;
    const end = start + line.trimEnd().length;
    const from = Math.min(start + column, end);
    return { from, to: Math.max(end, from), severity: severityOf(p.severity), text: p.path ? `${p.path}: ${p.text}` : p.text, line: index + 1 };
  });
}

function severityOf(s: string): Range["severity"] {
  return s === "warning" || s === "info" ? s : "error";
}

/** headline summarizes the findings in one line. */
export function headline(problems: readonly Finding[]): string {
  const errors = problems.filter((p) => severityOf(p.severity) === "error").length;
  const rest = problems.length - errors;
  const warnings = `${rest} ${rest === 1 ? "warning" : "warnings"}`;
  if (errors === 0) return rest === 0 ? "No problems" : `${warnings}; it can be applied`;
  const count = `${errors} ${errors === 1 ? "error" : "errors"}`;
  return rest === 0 ? `${count}; it cannot be applied` : `${count} and ${warnings}; it cannot be applied`;
}

/** The response of POST /console/api/policy/explain. */
export interface Explanation {
  effect: string;
  rule: string;
  layer?: string;
  reason?: string;
  fix?: string;
}

export const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;

/** asURL parses typed text as the URL of a request, or returns why it is invalid. */
export function asURL(typed: string): { url: string } | { wrong: string } {
  const text = typed.trim();
  if (text === "") return { wrong: "Write a URL, such as https://api.github.com/repos" };
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `https://${text}`;
  let url: URL;
  try {
    url = new URL(full);
  } catch {
    return { wrong: "This is not a URL" };
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return { wrong: "Only http and https URLs can be explained" };
  // The text is used and not its parsed form: the policy refuses some paths because of their
  // spelling.
  return { url: full };
}
