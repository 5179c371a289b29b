// The fields of the policy page in the URL. The router loads this file at once, so it is separate
// from the page.

export interface PolicySearch {
  /** ID of the sandbox whose policy is shown. */
  sandbox?: string;
  view?: "diff";
  /** What the draft is compared with: effective, layer-N, a preset's name, or a digest. */
  against?: string;
}

/** readSearch returns the known fields of a URL and drops the rest. */
export function readSearch(raw: Record<string, unknown>): PolicySearch {
  const out: PolicySearch = {};
  const text = (v: unknown) => (typeof v === "string" || typeof v === "number" ? String(v).slice(0, 256) : "");
  if (text(raw["sandbox"])) out.sandbox = text(raw["sandbox"]);
  if (raw["view"] === "diff") out.view = "diff";
  if (text(raw["against"])) out.against = text(raw["against"]);
  return out;
}
