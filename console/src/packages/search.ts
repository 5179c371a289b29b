// The fields of the page of packages in the URL. The router loads this file at once, so it is
// separate from the page.

export const sorts = ["name", "largest", "fetched", "used"] as const;
export type Sort = (typeof sorts)[number];

export const verdicts = ["passed", "filtered", "unverified", "refused"] as const;
export type Verdict = (typeof verdicts)[number];

/** The fields in the URL. An absent field does not filter; the default order is by name. */
export interface PackageSearch {
  /** The answers of the gate instead of the content of the cache. */
  view?: "answers";
  q?: string;
  ecosystem?: string;
  sort?: Sort;
  verdict?: Verdict;
}

/** packageSearch returns the known fields of a URL and drops the rest. */
export function packageSearch(raw: Record<string, unknown>): PackageSearch {
  const out: PackageSearch = {};
  if (raw["view"] === "answers") out.view = "answers";
  for (const name of ["q", "ecosystem"] as const) {
    const value = raw[name];
    // The router parses 12 as a number and true as a boolean.
    const text = typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : "";
    if (text !== "") out[name] = text.slice(0, 200);
  }
  const sort = sorts.find((s) => s === raw["sort"]);
  if (sort && sort !== "name") out.sort = sort;
  const verdict = verdicts.find((v) => v === raw["verdict"]);
  if (verdict) out.verdict = verdict;
  return out;
}
