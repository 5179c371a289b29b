export interface FileEntry {
  name: string;
  path: string;
  type: "file" | "dir" | "symlink" | "other";
  size: number;
  mode?: string | number | undefined;
  modified_at?: string | undefined;
  target?: string | undefined;
}

export interface Node extends FileEntry {
  level: number;
  open: boolean;
  /** Its entries are being loaded. */
  loading: boolean;
  index: number;
  siblings: number;
}

/** Entries of the directories that have been read, by path. */
export type Listings = ReadonlyMap<string, readonly FileEntry[]>;

/** The visible rows of a tree, from top to bottom. */
export function rowsOf(root: string, listings: Listings, open: ReadonlySet<string>): Node[] {
  const out: Node[] = [];
  const add = (dir: string, level: number) => {
    const entries = [...(listings.get(dir) ?? [])].sort(compareEntries);
    entries.forEach((entry, i) => {
      const isOpen = entry.type === "dir" && open.has(entry.path);
      out.push({ ...entry, level, open: isOpen, loading: isOpen && !listings.has(entry.path), index: i + 1, siblings: entries.length });
      // The depth is limited, in case the server reports a directory below itself.
      if (isOpen && level < 64) add(entry.path, level + 1);
    });
  };
  add(root, 1);
  return out;
}

function compareEntries(a: FileEntry, b: FileEntry): number {
  if ((a.type === "dir") !== (b.type === "dir")) return a.type === "dir" ? -1 : 1;
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

/**
 * The effect of a key in a tree: the row to move to, the directory to open or close, or the row to
 * choose.
 */
export function keyAction(key: string, rows: readonly Node[], at: string): { to?: string; toggle?: string; choose?: string } {
  const i = rows.findIndex((row) => row.path === at);
  const row = rows[i];
  const path = (n: number) => {
    const found = rows[n];
    return found ? { to: found.path } : {};
  };
  switch (key) {
    case "ArrowDown":
      return path(i + 1);
    case "ArrowUp":
      return path(Math.max(0, i - 1));
    case "Home":
      return path(0);
    case "End":
      return path(rows.length - 1);
    case "ArrowRight":
      if (row?.type !== "dir") return {};
      return row.open ? (rows[i + 1]?.level === row.level + 1 ? path(i + 1) : {}) : { toggle: row.path };
    case "ArrowLeft":
      if (row?.open) return { toggle: row.path };
      for (let n = i - 1; n >= 0; n--) if ((rows[n]?.level ?? 0) < (row?.level ?? 0)) return path(n);
      return {};
    case "Enter":
    case " ":
      if (!row) return {};
      return row.type === "dir" ? { toggle: row.path } : { choose: row.path };
  }
  return {};
}

export function parentOf(path: string): string {
  const at = path.lastIndexOf("/");
  return at <= 0 ? "/" : path.slice(0, at);
}

export function joinPath(dir: string, name: string): string {
  return dir.endsWith("/") ? dir + name : `${dir}/${name}`;
}

/** The directories above a path, from the top. */
export function ancestors(root: string, path: string): string[] {
  const out: string[] = [];
  for (let dir = parentOf(path); dir.length > root.length && dir.startsWith(root); dir = parentOf(dir)) out.unshift(dir);
  return out;
}

/** Returns why a name for a new file or directory is invalid, or an empty text. */
export function nameError(name: string): string {
  if (name === "" || name === "." || name === "..") return "Enter a name.";
  if (name.includes("/") || name.includes("\0")) return "A name must not contain a slash.";
  if (new TextEncoder().encode(name).length > 255) return "The name is too long.";
  return "";
}
