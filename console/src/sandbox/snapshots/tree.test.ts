import { describe, expect, it } from "vitest";
import { branches, flatten, lineage, type SnapshotLike } from "./tree";

const snap = (id: string, sandbox: string, parent?: string, minute = 0): SnapshotLike => ({
  id, sandbox, template: "base", created_at: new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString(), ...(parent ? { parent } : {}),
});

describe("branches", () => {
  it("shows the origin of a sandbox and its current snapshot", () => {
    const root = branches([snap("b", "s", "a", 2), snap("a", "s", undefined, 1), snap("c", "s", "a", 1)], undefined, "b");
    expect(flatten(root).map((b) => [b.snapshot?.id ?? "start", b.level, b.here])).toEqual([
      ["start", 0, false],
      ["a", 1, false],
      ["c", 2, false],
      ["b", 2, true],
    ]);
    expect(root.origin).toBe(true);
  });

  it("is at the root until a snapshot was taken", () => {
    expect(branches([], undefined, undefined)).toMatchObject({ here: true, origin: true, children: [] });
  });

  it("keeps children of a removed parent, and ends in a cycle", () => {
    expect(flatten(branches([snap("b", "s", "gone")], undefined, "gone")).map((b) => [b.snapshot?.id, b.here])).toEqual([[undefined, true], ["b", false]]);
    expect(flatten(branches([snap("a", "s", "a"), snap("b", "s", "c"), snap("c", "s", "b")], undefined, undefined)).length).toBeLessThan(5);
  });
});

it("includes the ancestors' snapshots, and not those of other sandboxes", () => {
  const all = [snap("x", "other"), snap("o", "parent"), snap("p", "parent", "o"), snap("a", "s", "p")];
  expect(lineage(all, "s", "p").map((s) => s.id).sort()).toEqual(["a", "o", "p"]);
});
