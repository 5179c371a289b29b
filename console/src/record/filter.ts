// The filter of the audit log: its form in the URL, the part that the server applies, and the part
// that the browser applies.
import { dataOf, kindGroups, summaryOf, type Entry } from "./entry";
import { readSearch, searchKeys, type RecordSearch } from "./search";

export { readSearch, searchKeys, type RecordSearch } from "./search";

/** withChange returns a search with one field set; an empty value removes it. */
export function withChange(search: RecordSearch, change: { [K in keyof RecordSearch]?: RecordSearch[K] | undefined }): RecordSearch {
  return readSearch({ ...search, ...change });
}

export function isFiltered(search: RecordSearch): boolean {
  return searchKeys.some((key) => search[key] !== undefined);
}

const span = /^(\d{1,6})\s*(m|h|d)$/;
const spanMS = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** timeOf parses a time, or a duration back from now. Null means invalid. */
export function timeOf(text: string, now: number): string | null {
  const back = span.exec(text.trim());
  if (back) return new Date(now - Number(back[1]) * spanMS[back[2] as keyof typeof spanMS]).toISOString();
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}

export interface ServerQuery {
  sandbox?: string;
  kind?: string;
  since?: string;
  until?: string;
}

/** queryOf returns the fields that the server filters by, and those that are invalid. */
export function queryOf(search: RecordSearch, now: number): { query: ServerQuery; errors: string[] } {
  const query: ServerQuery = {};
  const errors: string[] = [];
  if (search.sandbox) query.sandbox = search.sandbox;
  if (search.kind) query.kind = search.kind;
  for (const bound of ["since", "until"] as const) {
    const raw = search[bound];
    if (!raw) continue;
    const at = timeOf(raw, now);
    if (at === null) errors.push(`"${raw}" is not a time: write 2h, 3d, or a date`);
    else query[bound] = at;
  }
  return { query, errors };
}

/** hasKind reports whether a list of kinds and groups includes a kind. */
export function hasKind(list: string, kind: string): boolean {
  const group = kind.includes(".") ? kind.slice(0, kind.indexOf(".")) : kind;
  return list.split(",").some((each) => each.trim() === kind || each.trim() === group);
}

/** toggleKinds returns a list of kinds with these added, or removed if all were in it. */
export function toggleKinds(list: string | undefined, kinds: readonly string[]): string {
  const has = new Set(kindGroups.flatMap((g) => g.kinds).filter((k) => list !== undefined && list !== "" && hasKind(list, k)));
  const on = kinds.every((k) => has.has(k));
  for (const k of kinds) {
    if (on) has.delete(k);
    else has.add(k);
  }
  return [...has].join(",");
}

/**
 * matchesFilter applies the whole filter, to live entries and to those that the server returned:
 * only this checks actor and text.
 */
export function matchesFilter(e: Entry, search: RecordSearch, query: ServerQuery): boolean {
  if (search.sandbox && e.sandbox !== search.sandbox && !(e.sandbox ?? "").startsWith(search.sandbox)) return false;
  if (search.kind && !hasKind(search.kind, e.kind)) return false;
  if (query.since && Date.parse(e.time) < Date.parse(query.since)) return false;
  if (query.until && Date.parse(e.time) >= Date.parse(query.until)) return false;
  return matchesInBrowser(e, search);
}

/** matchesInBrowser applies the part of the filter that the server does not. */
export function matchesInBrowser(e: Entry, search: RecordSearch): boolean {
  if (search.actor && !(e.actor ?? "").toLowerCase().includes(search.actor.toLowerCase())) return false;
  if (search.text) {
    const needle = search.text.toLowerCase();
    const hay = `${e.seq} ${e.kind} ${e.sandbox ?? ""} ${e.actor ?? ""} ${summaryOf(e)} ${JSON.stringify(dataOf(e))}`;
    if (!hay.toLowerCase().includes(needle)) return false;
  }
  return true;
}

/**
 * filtersInBrowser reports whether the browser applies part of the filter, so that pages may have
 * fewer entries than were read.
 */
export function filtersInBrowser(search: RecordSearch): boolean {
  return search.actor !== undefined || search.text !== undefined;
}
