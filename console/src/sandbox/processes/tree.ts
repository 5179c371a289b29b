export interface ProcessLike {
  pid: number;
  ppid?: number | undefined;
  cpu?: number | undefined;
  memory?: number | undefined;
}

export interface Placed<P extends ProcessLike> {
  process: P;
  level: number;
}

/** Processes below their parents, in the order of their numbers. */
export function nested<P extends ProcessLike>(processes: readonly P[]): Placed<P>[] {
  const known = new Set(processes.map((one) => one.pid));
  const children = new Map<number, P[]>();
  for (const one of processes) {
    const parent = one.ppid !== undefined && one.ppid !== one.pid && known.has(one.ppid) ? one.ppid : -1;
    children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  const out: Placed<P>[] = [];
  const seen = new Set<number>();
  const add = (parent: number, level: number) => {
    for (const process of (children.get(parent) ?? []).sort((a, b) => a.pid - b.pid)) {
      if (seen.has(process.pid)) continue;
      seen.add(process.pid);
      out.push({ process, level });
      add(process.pid, level + 1);
    }
  };
  add(-1, 0);
  // A sandbox that lies can report a cycle. Its members are shown nevertheless.
  for (const process of processes) if (!seen.has(process.pid)) out.push({ process, level: 0 });
  return out;
}

export const orders = ["tree", "cpu", "memory", "pid"] as const;
export type Order = (typeof orders)[number];

export function ordered<P extends ProcessLike>(processes: readonly P[], order: Order): Placed<P>[] {
  if (order === "tree") return nested(processes);
  const sortKey = (one: P) => (order === "pid" ? -one.pid : (one[order] ?? -1));
  return [...processes].sort((a, b) => sortKey(b) - sortKey(a) || a.pid - b.pid).map((process) => ({ process, level: 0 }));
}
