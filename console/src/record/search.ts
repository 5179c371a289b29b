// The record's filter as it stands in the URL. The router loads this at once, so it is apart from the rest.

/** What stands in the URL. Absent is no bound. */
export interface RecordSearch {
  sandbox?: string;
  /** Kinds or groups of them, with commas between. */
  kind?: string;
  actor?: string;
  /** From this time on, RFC 3339 or a span back from now such as 2h. */
  since?: string;
  until?: string;
  text?: string;
  /** Live entries are held back. */
  paused?: boolean;
}

export const searchKeys = ["sandbox", "kind", "actor", "since", "until", "text"] as const;

/** readSearch takes what it knows out of a URL and drops the rest. */
export function readSearch(raw: Record<string, unknown>): RecordSearch {
  const out: RecordSearch = {};
  for (const key of searchKeys) {
    const value = raw[key];
    if (value === undefined || value === null || value === "") continue;
    // The router reads bare numbers as numbers; a name may look like one.
    if (typeof value === "string" || typeof value === "number") out[key] = String(value).slice(0, 512);
  }
  if (raw["paused"] === true || raw["paused"] === "true") out.paused = true;
  return out;
}
