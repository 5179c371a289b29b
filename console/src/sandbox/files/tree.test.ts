import { describe, expect, it } from "vitest";
import { above, joined, keyed, parentOf, rowsOf, wrongName, type FileEntry } from "./tree";

const entry = (path: string, type: FileEntry["type"] = "file"): FileEntry => ({ name: path.slice(path.lastIndexOf("/") + 1), path, type, size: 1 });
const listings = new Map<string, FileEntry[]>([
  ["/", [entry("/z.txt"), entry("/b", "dir"), entry("/a", "dir"), entry("/l", "symlink")]],
  ["/a", [entry("/a/x")]],
]);

describe("rowsOf", () => {
  it("lists directories first, with the entries of open ones below them", () => {
    const rows = rowsOf("/", listings, new Set(["/a", "/b"]));
    expect(rows.map((r) => [r.path, r.level, r.open, r.loading])).toEqual([
      ["/a", 1, true, false],
      ["/a/x", 2, false, false],
      ["/b", 1, true, true],
      ["/l", 1, false, false],
      ["/z.txt", 1, false, false],
    ]);
    expect(rows[2]).toMatchObject({ index: 2, siblings: 4 });
  });

  it("stops at a directory that is below itself", () => {
    const loop = new Map([["/", [entry("/", "dir")]]]);
    expect(rowsOf("/", loop, new Set(["/"])).length).toBeLessThan(100);
  });
});

describe("keyed", () => {
  const rows = rowsOf("/", listings, new Set(["/a"]));
  it("moves, opens, closes and chooses", () => {
    expect(keyed("ArrowDown", rows, "/a")).toEqual({ to: "/a/x" });
    expect(keyed("ArrowUp", rows, "/a")).toEqual({ to: "/a" });
    expect(keyed("ArrowRight", rows, "/a")).toEqual({ to: "/a/x" });
    expect(keyed("ArrowRight", rows, "/b")).toEqual({ toggle: "/b" });
    expect(keyed("ArrowLeft", rows, "/a/x")).toEqual({ to: "/a" });
    expect(keyed("ArrowLeft", rows, "/a")).toEqual({ toggle: "/a" });
    expect(keyed("Enter", rows, "/a/x")).toEqual({ choose: "/a/x" });
    expect(keyed("End", rows, "/a")).toEqual({ to: "/z.txt" });
    expect(keyed("x", rows, "/a")).toEqual({});
    expect(keyed("ArrowDown", rows, "/gone")).toEqual({ to: "/a" });
  });
});

describe("paths", () => {
  it("are split and joined", () => {
    expect([parentOf("/a/b"), parentOf("/a"), parentOf("/")]).toEqual(["/a", "/", "/"]);
    expect([joined("/", "a"), joined("/a", "b")]).toEqual(["/a", "/a/b"]);
    expect(above("/", "/a/b/c")).toEqual(["/a", "/a/b"]);
    expect(above("/home", "/etc/passwd")).toEqual([]);
    expect(["", "..", "a/b", "x".repeat(256), "ok"].map((n) => wrongName(n) !== "")).toEqual([true, true, true, true, false]);
  });
});
