// Builds the output and the result of a cell from its event stream. A program in the sandbox chose
// all of it.

/** One line of POST /console/api/sandboxes/{id}/cells. */
export type CellEvent =
  | { type: "stdout" | "stderr"; text: string }
  | { type: "result"; main?: boolean; data: Record<string, unknown> }
  | { type: "error"; name: string; value: string; traceback: string | string[] }
  | { type: "end"; duration_ms?: number; execution_count?: number; lost?: boolean };

export type Output =
  | { kind: "stdout" | "stderr"; text: string }
  | { kind: "result"; main: boolean; data: Record<string, unknown> }
  | { kind: "error"; name: string; value: string; traceback: string };

export interface CellRun {
  outputs: readonly Output[];
  /** Number of characters that were dropped from the beginning of the output. */
  dropped: number;
  state: "running" | "done" | "failed" | "interrupted" | "lost";
  durationMS?: number;
  count?: number;
}

/**
 * maxText is the most characters that the page keeps of a cell, so that a printing loop cannot fill
 * the tab's memory.
 */
export const maxText = 512 * 1024;
const maxResults = 64;
// Each change between the two streams starts a separate element on the page, and a program could
// cause one with every letter.
const maxPieces = 1000;

export const startRun: CellRun = { outputs: [], dropped: 0, state: "running" };

/** addEvent adds an event to a run. */
export function addEvent(run: CellRun, e: CellEvent): CellRun {
  switch (e.type) {
    case "stdout":
    case "stderr":
      return trimmed({ ...run, outputs: withText(run.outputs, e.type, String(e.text ?? "")) });
    case "result":
      if (run.outputs.filter((o) => o.kind === "result").length >= maxResults) return run;
      return { ...run, outputs: [...run.outputs, { kind: "result", main: e.main === true, data: asData(e.data) }] };
    case "error": {
      const traceback = Array.isArray(e.traceback) ? e.traceback.join("\n") : String(e.traceback ?? "");
      const out: Output = { kind: "error", name: String(e.name ?? ""), value: String(e.value ?? ""), traceback };
      return { ...run, outputs: [...run.outputs, out], state: "failed" };
    }
    case "end": {
      const done: CellRun = { ...run, state: e.lost ? "lost" : run.state === "running" ? "done" : run.state };
      if (e.duration_ms !== undefined) done.durationMS = e.duration_ms;
      if (e.execution_count !== undefined) done.count = e.execution_count;
      return done;
    }
    default:
      return run;
  }
}

function asData(data: unknown): Record<string, unknown> {
  return typeof data === "object" && data !== null && !Array.isArray(data) ? (data as Record<string, unknown>) : {};
}

function withText(outputs: readonly Output[], kind: "stdout" | "stderr", text: string): Output[] {
  const last = outputs.at(-1);
  if (last?.kind === kind) return [...outputs.slice(0, -1), { kind, text: last.text + text }];
  return [...outputs, { kind, text }];
}

function trimmed(run: CellRun): CellRun {
  let over = run.outputs.reduce((n, o) => n + ("text" in o ? o.text.length : 0), 0) - maxText;
  let pieces = run.outputs.length - maxPieces;
  if (over <= 0 && pieces <= 0) return run;
  let dropped = run.dropped;
  const outputs: Output[] = [];
  for (const o of run.outputs) {
    if ((over > 0 || pieces > 0) && "text" in o) {
      const cut = pieces > 0 ? o.text.length : Math.min(over, o.text.length);
      over -= cut;
      dropped += cut;
      if (cut < o.text.length) outputs.push({ ...o, text: o.text.slice(cut) });
      else pieces--;
    } else outputs.push(o);
  }
  return { ...run, outputs, dropped };
}

/** How a result may be shown without running code or loading anything. */
export type View =
  | { as: "image"; src: string; alt: string }
  | { as: "frame"; html: string }
  | { as: "table"; columns: string[]; rows: string[][] }
  | { as: "text"; text: string };

const base64 = /^[A-Za-z0-9+/=\s]*$/;

/** viewsOf returns the ways to show a result, the richest first. */
export function viewsOf(data: Record<string, unknown>): View[] {
  const out: View[] = [];
  for (const mime of ["image/png", "image/jpeg"]) {
    const value = data[mime];
    if (typeof value === "string" && base64.test(value)) out.push({ as: "image", src: `data:${mime};base64,${value.replaceAll(/\s/g, "")}`, alt: "Chart" });
  }
  const svg = data["image/svg+xml"];
  // In an image, an SVG runs no code and loads nothing.
  if (typeof svg === "string") out.push({ as: "image", src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, alt: "Drawing" });
  for (const [mime, value] of Object.entries(data)) if (mime.includes("chart")) out.push(...chartView(value));
  out.push(...frameView(data["application/vnd.crannog.data+json"]));
  const html = data["text/html"];
  if (typeof html === "string") out.push({ as: "frame", html: framed(html) });
  const json = data["application/json"];
  if (json !== undefined) out.push({ as: "text", text: typeof json === "string" ? json : JSON.stringify(json, null, 2) });
  for (const mime of ["text/markdown", "text/latex", "text/plain", "application/javascript"]) {
    const value = data[mime];
    if (typeof value === "string") out.push({ as: "text", text: value });
  }
  if (out.length === 0) out.push({ as: "text", text: Object.keys(data).join(", ") || "nothing" });
  return out;
}

/** frameView shows a data frame, whose data is sorted by columns, as a table. */
function frameView(value: unknown): View[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
  const columns = Object.entries(value as Record<string, unknown>).filter((c): c is [string, unknown[]] => Array.isArray(c[1]));
  if (columns.length === 0) return [];
  const height = Math.min(Math.max(...columns.map(([, v]) => v.length)), maxRows);
  const rows = Array.from({ length: height }, (_, i) => columns.slice(0, maxColumns).map(([, v]) => cell(v[i])));
  return [{ as: "table", columns: columns.slice(0, maxColumns).map(([name]) => name), rows }];
}

const maxRows = 1000;
const maxColumns = 64;

/** chartView shows a chart's numbers as a table, in addition to its picture. */
function chartView(value: unknown): View[] {
  const chart = typeof value === "string" ? parsed(value) : value;
  if (typeof chart !== "object" || chart === null) return [];
  const elements = (chart as { elements?: unknown }).elements;
  if (!Array.isArray(elements) || elements.length === 0) return [];
  const rows: string[][] = [];
  for (const e of elements.slice(0, 200) as Record<string, unknown>[]) {
    const points = e?.["points"];
    if (Array.isArray(points)) for (const p of points.slice(0, 500)) rows.push([cell(e["label"]), ...(Array.isArray(p) ? p.map(cell) : [cell(p)])]);
    else rows.push(Object.values(e ?? {}).map(cell));
  }
  const width = Math.max(...rows.map((r) => r.length));
  const first = elements[0] as Record<string, unknown>;
  const columns = Array.isArray(first?.["points"])
    ? ["Label", axis(chart, "x_label", "x"), axis(chart, "y_label", "y"), ...Array.from({ length: Math.max(width - 3, 0) }, (_, i) => String(i + 4))]
    : Object.keys(first ?? {});
  return [{ as: "table", columns, rows: rows.slice(0, maxRows) }];
}

function axis(chart: object, name: string, otherwise: string): string {
  const label = (chart as Record<string, unknown>)[name];
  return typeof label === "string" && label !== "" ? label : otherwise;
}

function cell(v: unknown): string {
  return v === null || v === undefined ? "" : typeof v === "object" ? JSON.stringify(v) : String(v);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// The frame has sandbox="": its own origin, no scripts, no forms and no access to the page. Its
// policy also forbids loading anything, because a request would tell an outsider that a person is
// viewing it.
const framePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'";
const frameLook =
  "body{font:13px system-ui,sans-serif;margin:8px;background:#fff;color:#1a1f23}table{border-collapse:collapse}" +
  "th,td{border:1px solid #dce1e5;padding:3px 8px;text-align:right}th{background:#f6f7f8}";

/** framed returns a document for the frame with HTML that a program made. */
export function framed(html: string): string {
  return `<!doctype html><html><head><meta http-equiv="Content-Security-Policy" content="${framePolicy}"><meta charset="utf-8"><style>${frameLook}</style></head><body>${html}</body></html>`;
}
