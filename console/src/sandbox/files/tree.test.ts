import { describe, expect, it } from "vitest";
import { ancestors, joinPath, keyAction, parentOf, rowsOf, nameError, type FileEntry } from "./tree";

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

describe("keyAction", () => {
  const rows = rowsOf("/", listings, new Set(["/a"]));
  it("moves, opens, closes and chooses", () => {
    expect(keyAction("ArrowDown", rows, "/a")).toEqual({ to: "/a/x" });
    expect(keyAction("ArrowUp", rows, "/a")).toEqual({ to: "/a" });
    expect(keyAction("ArrowRight", rows, "/a")).toEqual({ to: "/a/x" });
    expect(keyAction("ArrowRight", rows, "/b")).toEqual({ toggle: "/b" });
    expect(keyAction("ArrowLeft", rows, "/a/x")).toEqual({ to: "/a" });
    expect(keyAction("ArrowLeft", rows, "/a")).toEqual({ toggle: "/a" });
    expect(keyAction("Enter", rows, "/a/x")).toEqual({ choose: "/a/x" });
    expect(keyAction("End", rows, "/a")).toEqual({ to: "/z.txt" });
    expect(keyAction("x", rows, "/a")).toEqual({});
    expect(keyAction("ArrowDown", rows, "/gone")).toEqual({ to: "/a" });
  });
});

describe("paths", () => {
  it("are split and joined", () => {
    expect([parentOf("/a/b"), parentOf("/a"), parentOf("/")]).toEqual(["/a", "/", "/"]);
    expect([joinPath("/", "a"), joinPath("/a", "b")]).toEqual(["/a", "/a/b"]);
    expect(ancestors("/", "/a/b/c")).toEqual(["/a", "/a/b"]);
    expect(ancestors("/home", "/etc/passwd")).toEqual([]);
    expect(["", "..", "a/b", "x".repeat(256), "ok"].map((n) => nameError(n) !== "")).toEqual([true, true, true, true, false]);
  });
});
