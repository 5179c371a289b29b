export interface SnapshotLike {
  id: string;
  name?: string | undefined;
  sandbox: string;
  parent?: string | undefined;
  template: string;
  created_at: string;
}

export interface Branch<S extends SnapshotLike> {
  /** The root has none: it is the template or, for a copy, a state that is not stored. */
  snapshot: S | undefined;
  level: number;
  children: Branch<S>[];
  /**
   * The sandbox's position: the snapshot that it was last restored from or that was last taken of
   * it.
   */
  here: boolean;
  /** The sandbox was created from this snapshot. */
  origin: boolean;
}

/**
 * The ancestors and snapshots of a sandbox, as a tree. Children of removed snapshots are at the
 * root.
 */
export function branches<S extends SnapshotLike>(snapshots: readonly S[], origin: string | undefined, here: string | undefined): Branch<S> {
  const known = new Map(snapshots.map((one) => [one.id, one]));
  const childrenOf = new Map<string, S[]>();
  for (const one of known.values()) {
    const parent = one.parent !== undefined && one.parent !== one.id && known.has(one.parent) ? one.parent : "";
    childrenOf.set(parent, [...(childrenOf.get(parent) ?? []), one]);
  }
  const placed = new Set<string>();
  const branch = (snapshot: S | undefined, level: number): Branch<S> => {
    if (snapshot) placed.add(snapshot.id);
    const children = (childrenOf.get(snapshot?.id ?? "") ?? [])
      .filter((one) => !placed.has(one.id))
      .sort((a, b) => Date.parse(a.created_at) - Date.parse(b.created_at))
      .map((one) => branch(one, level + 1));
    return { snapshot, level, children, here: snapshot ? snapshot.id === here : !here || !known.has(here), origin: snapshot ? snapshot.id === origin : !origin };
  };
  return branch(undefined, 0);
}

/** The branches from top to bottom. */
export function flatten<S extends SnapshotLike>(root: Branch<S>): Branch<S>[] {
  return [root, ...root.children.flatMap(flatten)];
}

/** The snapshots that belong to a sandbox: its own and its ancestors'. */
export function lineage<S extends SnapshotLike>(all: readonly S[], sandbox: string, origin: string | undefined): S[] {
  const known = new Map(all.map((one) => [one.id, one]));
  const lineageByID = new Map<string, S>();
  const keep = (one: S | undefined) => {
    while (one && !lineageByID.has(one.id)) {
      lineageByID.set(one.id, one);
      one = one.parent === undefined ? undefined : known.get(one.parent);
    }
  };
  for (const one of all) if (one.sandbox === sandbox) keep(one);
  if (origin) keep(known.get(origin));
  return [...lineageByID.values()];
}
