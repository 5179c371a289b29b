// The fields of the page for a new sandbox in the URL. The router loads this file at once, so it is
// separate from the page.

export interface NewSearch {
  /** The template or snapshot to start from. */
  template?: string;
  /** The created sandbox, in which code is run. */
  sandbox?: string;
}

/** readSearch returns the known fields of a URL and drops the rest. */
export function readSearch(raw: Record<string, unknown>): NewSearch {
  const out: NewSearch = {};
  for (const name of ["template", "sandbox"] as const) {
    const v = raw[name];
    if ((typeof v === "string" && v !== "") || typeof v === "number") out[name] = String(v).slice(0, 256);
  }
  return out;
}
