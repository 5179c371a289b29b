// The content of the package cache: totals, filter and order.
import type { Schemas } from "../api/client";
import type { PackageSearch, Sort } from "./search";

/** The key under which the page keeps the content of the cache. */
export const cacheKey = ["package-cache"];

export type Cached = Schemas["CachedPackage"];

/** What the cache has of one ecosystem. */
export interface Totals {
  ecosystem: string;
  packages: number;
  /** Versions of packages. */
  files: number;
  /** What registries say about packages. */
  documents: number;
  /** Disk space: a content that several URLs have is stored once. */
  bytes: number;
}

/** totalsOf counts the entries of each ecosystem, in alphabetical order. */
export function totalsOf(all: readonly Cached[]): Totals[] {
  const found = new Map<string, { names: Set<string>; contents: Set<string>; totals: Totals }>();
  for (const p of all) {
    let of = found.get(p.ecosystem);
    if (!of) {
      of = { names: new Set(), contents: new Set(), totals: { ecosystem: p.ecosystem, packages: 0, files: 0, documents: 0, bytes: 0 } };
      found.set(p.ecosystem, of);
    }
    of.names.add(p.name);
    of.totals.packages = of.names.size;
    if (p.version) of.totals.files++;
    else of.totals.documents++;
    if (!of.contents.has(p.sha256)) of.totals.bytes += p.size_bytes;
    of.contents.add(p.sha256);
  }
  return [...found.values()].map((of) => of.totals).sort((a, b) => compare(a.ecosystem, b.ecosystem));
}

/** usedBytes returns the disk space of all contents. */
export function usedBytes(all: readonly Cached[]): number {
  const sizes = new Map(all.map((p) => [p.sha256, p.size_bytes]));
  let sum = 0;
  for (const size of sizes.values()) sum += size;
  return sum;
}

/** filterCached returns the entries that have every typed word, of one ecosystem if one is set. */
export function filterCached(all: readonly Cached[], search: Pick<PackageSearch, "q" | "ecosystem">): Cached[] {
  const terms = (search.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((p) => {
    if (search.ecosystem && p.ecosystem !== search.ecosystem) return false;
    if (terms.length === 0) return true;
    const hay = `${nameOf(p)} ${p.sha256} ${p.url}`.toLowerCase();
    return terms.every((term) => hay.includes(term));
  });
}

const time = (at: string) => Date.parse(at) || 0;

const orders: Record<Sort, (a: Cached, b: Cached) => number> = {
  name: () => 0,
  largest: (a, b) => b.size_bytes - a.size_bytes,
  fetched: (a, b) => time(b.fetched_at) - time(a.fetched_at),
  used: (a, b) => time(b.used_at) - time(a.used_at),
};

/** sortCached sorts entries; equal ones are in the order of their names. */
export function sortCached(all: readonly Cached[], sort: Sort): Cached[] {
  const by = orders[sort];
  return [...all].sort((a, b) => by(a, b) || compare(a.ecosystem, b.ecosystem) || compare(a.name, b.name) || compare(a.version ?? "", b.version ?? "") || compare(a.url, b.url));
}

// Not a collator: localeCompare takes seconds for ten thousand names.
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** nameOf returns the name of a package as policies write it, unchanged: show it with Inert. */
export function nameOf(p: { ecosystem: string; name: string; version?: string | undefined }): string {
  return `${p.ecosystem}:${p.name}${p.version ? `@${p.version}` : ""}`;
}

const units = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };

/** parseSize reads bytes as 500m, 1.5g, 64KiB or a plain number, or returns null. */
export function parseSize(text: string): number | null {
  const match = /^(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?$/.exec(text.trim().toLowerCase());
  if (!match) return null;
  const bytes = Math.floor(Number(match[1]) * units[(match[2] ?? "") as keyof typeof units]);
  return Number.isSafeInteger(bytes) ? bytes : null;
}

/** The share of the budget that is used, from 0 to 1. A cache without a budget counts as full. */
export function share(used: number, budget: number): number {
  if (budget <= 0) return used > 0 ? 1 : 0;
  return Math.min(1, used / budget);
}
