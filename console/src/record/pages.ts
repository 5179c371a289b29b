// Reads the audit log backwards, in pages. Part of the filter is applied here and not by the
// server, so if too few entries match, more are read, up to a bound.
import type { Entry } from "./entry";

export interface Page {
  /** The matching entries, oldest first. */
  entries: Entry[];
  /** Continue before this entry; null if the beginning is reached. */
  before: number | null;
}

/** ReadBack reads at most limit entries before an entry, or the newest ones, oldest first. */
export type ReadBack = (before: number | undefined, limit: number) => Promise<Entry[]>;

const chunkSize = 200;
const maxChunks = 10;

/**
 * readPage reads backwards until it has enough entries, the audit log begins, or it has read
 * maxChunks chunks. The bound ends a search that finds nothing. The result states how far it
 * searched.
 */
export async function readPage(read: ReadBack, matches: (e: Entry) => boolean, before: number | undefined, limit: number): Promise<Page> {
  const found: Entry[][] = [];
  let count = 0;
  let from = before;
  for (let n = 0; n < maxChunks; n++) {
    const entries = await read(from, chunkSize);
    const matching = entries.filter(matches);
    found.unshift(matching);
    count += matching.length;
    const first = entries[0];
    if (first === undefined || first.seq === 0 || entries.length < chunkSize) return { entries: found.flat(), before: null };
    from = first.seq;
    if (count >= limit) break;
  }
  return { entries: found.flat(), before: from ?? null };
}

/** merge returns one list of read and live entries, newest first, without duplicates. */
export function merge(...lists: readonly (readonly Entry[])[]): Entry[] {
  const bySeq = new Map<number, Entry>();
  for (const list of lists) for (const e of list) bySeq.set(e.seq, e);
  return [...bySeq.values()].toSorted((a, b) => b.seq - a.seq);
}
