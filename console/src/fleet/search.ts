import type { FleetRow } from "../api/console";
import { inertLine } from "../parts/inert";

export const sorts = ["attention", "name", "newest", "ends", "state"] as const;
export type Sort = (typeof sorts)[number];

/**
 * The filter and the order of the fleet, as in the URL. An absent field does not filter; the
 * default order is by attention.
 */
export interface FleetSearch {
  q?: string;
  state?: string;
  level?: string;
  owner?: string;
  /** key or key=value. */
  label?: string;
  attention?: true;
  sort?: Sort;
  view?: "table";
}

const words = ["q", "state", "level", "owner", "label"] as const;

/** Parses the search of a URL; unknown fields are ignored. */
export function fleetSearch(raw: Record<string, unknown>): FleetSearch {
  const search: FleetSearch = {};
  for (const name of words) {
    const value = raw[name];
    // The router parses 12 as a number and true as a boolean.
    const text = typeof value === "string" ? value : typeof value === "number" || typeof value === "boolean" ? String(value) : "";
    if (text !== "") search[name] = text.slice(0, 200);
  }
  if (raw["attention"] === true || raw["attention"] === "true" || raw["attention"] === 1) search.attention = true;
  const sort = sorts.find((s) => s === raw["sort"]);
  if (sort && sort !== "attention") search.sort = sort;
  if (raw["view"] === "table") search.view = "table";
  return search;
}

/** The rows that match a filter. */
export function filterFleet(rows: readonly FleetRow[], search: FleetSearch): FleetRow[] {
  const terms = (search.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(
    (row) =>
      (!search.state || row.state === search.state) &&
      (!search.level || row.level === search.level) &&
      (!search.owner || row.owner === search.owner) &&
      (!search.label || hasLabel(row, search.label)) &&
      (!search.attention || row.attention > 0) &&
      terms.every((term) => mentions(row, term)),
  );
}

function hasLabel(row: FleetRow, label: string): boolean {
  const at = label.indexOf("=");
  if (at < 0) return Object.hasOwn(row.labels, label);
  const key = label.slice(0, at);
  return Object.hasOwn(row.labels, key) && row.labels[key] === label.slice(at + 1);
}

function mentions(row: FleetRow, term: string): boolean {
  if ([row.name, row.id, row.template, row.last_command?.text ?? ""].some((text) => text.toLowerCase().includes(term))) return true;
  return Object.entries(row.labels).some(([key, value]) => `${key}=${value}`.toLowerCase().includes(term));
}

const stateOrder = ["running", "resuming", "creating", "pausing", "stopping", "paused", "stopped"];

function stateRank(state: string): number {
  const at = stateOrder.indexOf(state);
  return at < 0 ? stateOrder.length : at;
}

/**
 * Sorts rows. The order of equal rows is stable, so that they do not move from one second to the
 * next.
 */
export function sortFleet(rows: readonly FleetRow[], sort: Sort): FleetRow[] {
  const by: Record<Sort, (a: FleetRow, b: FleetRow) => number> = {
    attention: (a, b) => b.attention - a.attention || stateRank(a.state) - stateRank(b.state),
    name: () => 0,
    newest: (a, b) => time(b.created_at) - time(a.created_at),
    ends: (a, b) => ends(a) - ends(b),
    state: (a, b) => stateRank(a.state) - stateRank(b.state),
  };
  return [...rows].sort((a, b) => by[sort](a, b) || compare(title(a), title(b)) || compare(a.id, b.id));
}

function time(at: string): number {
  return Date.parse(at) || 0;
}

function ends(row: FleetRow): number {
  return row.ends_at ? time(row.ends_at) : Number.MAX_SAFE_INTEGER;
}

// A collator, because localeCompare takes almost a second for a thousand rows.
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The display name of a sandbox, unchanged: show it with Inert. */
export function title(row: Pick<FleetRow, "name" | "id">): string {
  return row.name || row.id;
}

/** The display name for attributes, which cannot contain an Inert element. */
export function plainTitle(row: Pick<FleetRow, "name" | "id">): string {
  return inertLine(title(row)).text;
}

/** The values that the filters offer, each with its number of rows. */
export function choices(rows: readonly FleetRow[], of: (row: FleetRow) => readonly string[]): { value: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const value of of(row)) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].map(([value, count]) => ({ value, count })).sort((a, b) => compare(a.value, b.value));
}
