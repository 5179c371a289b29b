// The fields of the audit log's filter in the URL. The router loads this file at once, so it is
// separate from the page.

/** The fields in the URL. An absent field does not filter. */
export interface RecordSearch {
  sandbox?: string;
  /** Kinds or groups of kinds, separated by commas. */
  kind?: string;
  actor?: string;
  /** From this time on: RFC 3339 or a duration back from now, such as 2h. */
  since?: string;
  until?: string;
  text?: string;
  /** Live entries are not shown. */
  paused?: boolean;
}

export const searchKeys = ["sandbox", "kind", "actor", "since", "until", "text"] as const;

/** readSearch returns the known fields of a URL and drops the rest. */
export function readSearch(raw: Record<string, unknown>): RecordSearch {
  const out: RecordSearch = {};
  for (const key of searchKeys) {
    const value = raw[key];
    if (value === undefined || value === null || value === "") continue;
    // The router parses bare numbers as numbers, and a name may be one.
    if (typeof value === "string" || typeof value === "number") out[key] = String(value).slice(0, 512);
  }
  if (raw["paused"] === true || raw["paused"] === "true") out.paused = true;
  return out;
}
