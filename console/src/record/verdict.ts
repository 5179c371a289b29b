// The result of a verification, in words for a person.

/** The response of POST /v1/record/verify. */
export interface Verification {
  ok: boolean;
  entries: number;
  first: number;
  seq?: number;
  fault?: string;
  text?: string;
  checkpoints: number;
  uncovered?: number;
}

export interface Verdict {
  ok: boolean;
  title: string;
  detail: string;
  /** The damaged entry, if it can be shown. */
  seq?: number;
}

const faultTitles: Record<string, (seq: number) => string> = {
  changed: (seq) => `Entry ${seq} was changed after it was written`,
  missing: (seq) => `Entry ${seq} was removed`,
  reordered: (seq) => `Entry ${seq} is not at its position`,
  cut: (seq) => `The entries from ${seq} on are missing`,
  forked: () => "The history differs from that of a signed tree head",
  unsigned: () => "A signed tree head is not signed by this audit log's key",
  unreadable: () => "The files of the audit log cannot be read",
};

const counted = (n: number, singular: string, plural: string) => `${n} ${n === 1 ? singular : plural}`;

export function verdictOf(v: Verification): Verdict {
  if (v.ok) {
    const open = v.uncovered ? ` ${counted(v.uncovered, "entry is", "entries are")} newer than the newest signed tree head.` : "";
    return {
      ok: true,
      title: `${counted(v.entries, "entry", "entries")} from number ${v.first} on ${v.entries === 1 ? "is" : "are"} unchanged`,
      detail: `${counted(v.checkpoints, "signed tree head agrees", "signed tree heads agree")}.${open}`,
    };
  }
  // An absent number is entry 0: the API leaves zero out.
  const seq = v.seq ?? 0;
  const titleOf = faultTitles[v.fault ?? ""];
  const out: Verdict = {
    ok: false,
    title: titleOf ? titleOf(seq) : "The audit log was changed",
    detail: v.text ?? "",
  };
  // The server's sentence may only repeat the title.
  if (out.title.toLowerCase().includes(out.detail.toLowerCase())) out.detail = "";
  if (v.fault && ["changed", "missing", "reordered", "cut"].includes(v.fault)) out.seq = seq;
  return out;
}
