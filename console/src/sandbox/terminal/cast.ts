/** One event of a recording, with its time from the start in seconds. */
export interface CastEvent {
  at: number;
  code: "o" | "r" | "m" | "x";
  data: string;
}

export interface Cast {
  cols: number;
  rows: number;
  command: string;
  /** When it was made, in milliseconds, if the recording states it. */
  startedAt: number | undefined;
  events: CastEvent[];
  duration: number;
  /** The recording ends in the middle of a line: its writer was interrupted. */
  cut: boolean;
}

/** The server limits recordings. This limit only protects the browser. */
const maxEvents = 500_000;
const maxSide = 1000;

/**
 * Parses a recording of version 2 or 3. Typed input is never in our recordings, and is left out of
 * others.
 */
export function parseCast(source: string): Cast {
  const lines = source.split("\n");
  const header = asObject(parseJSON(lines[0] ?? ""));
  const version = header?.["version"];
  if (!header || (version !== 2 && version !== 3)) throw new Error("This recording cannot be shown.");
  const term = version === 3 ? (asObject(header["term"]) ?? {}) : { cols: header["width"], rows: header["height"] };
  const timestamp = header["timestamp"];
  const cast: Cast = {
    cols: sizeWithin(term["cols"], 80), rows: sizeWithin(term["rows"], 24), command: typeof header["command"] === "string" ? header["command"] : "",
    startedAt: typeof timestamp === "number" ? timestamp * 1000 : undefined, events: [], duration: 0, cut: false,
  };
  let now = 0;
  for (let i = 1; i < lines.length && cast.events.length < maxEvents; i++) {
    const line = lines[i]?.trim() ?? "";
    if (line === "" || line.startsWith("#")) continue;
    const row = parseJSON(line);
    if (!Array.isArray(row) || typeof row[0] !== "number" || !Number.isFinite(row[0]) || typeof row[1] !== "string") {
      cast.cut = true;
      break;
    }
    now = version === 3 ? now + Math.max(0, row[0]) : Math.max(now, row[0]);
    const code = row[1];
    if (code === "o" || code === "r" || code === "m" || code === "x") cast.events.push({ at: now, code, data: String(row[2] ?? "") });
  }
  cast.duration = now;
  return cast;
}

/** Shortens pauses without output to limit seconds. */
export function shortened(cast: Cast, limit: number): Cast {
  let before = 0;
  let now = 0;
  const events = cast.events.map((event) => {
    now += Math.min(limit, event.at - before);
    before = event.at;
    return { ...event, at: now };
  });
  return { ...cast, events, duration: now + Math.min(limit, cast.duration - before) };
}

/** Parses a size such as 80x24; returns undefined if it is not one. */
export function sizeOf(data: string): { cols: number; rows: number } | undefined {
  const found = /^(\d{1,5})x(\d{1,5})$/.exec(data);
  return found ? { cols: sizeWithin(Number(found[1]), 80), rows: sizeWithin(Number(found[2]), 24) } : undefined;
}

function sizeWithin(value: unknown, fallback: number): number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? Math.min(value, maxSide) : fallback;
}

function parseJSON(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    return undefined;
  }
}

function asObject(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined;
}
