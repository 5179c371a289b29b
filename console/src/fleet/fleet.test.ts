import { describe, expect, it } from "vitest";
import type { FleetRow } from "../api/console";
import { ApiProblem } from "../api/problem";
import { fleetRow } from "../api/row.fixture";
import { type Outcome, acts, forEach } from "./bulk";
import { keepOrder } from "./hold";
import { nextIndex } from "./keys";
import { choices, filterFleet, fleetSearch, sortFleet } from "./search";

const ids = (rows: FleetRow[]) => rows.map((row) => row.id);

describe("the address of the fleet", () => {
  it.each([
    [{}, {}],
    [{ q: "a b", state: "running", level: "strict", owner: "key_1", label: "team=ml" }, { q: "a b", state: "running", level: "strict", owner: "key_1", label: "team=ml" }],
    // Text that looks like a number or a truth value is still text.
    [{ q: 12, label: true }, { q: "12", label: "true" }],
    [{ q: "", state: null, owner: ["x"], level: { a: 1 } }, {}],
    [{ attention: true }, { attention: true }],
    [{ attention: "no", sort: "evil", view: "pie", token: "x" }, {}],
    [{ sort: "attention", view: "grid" }, {}],
    [{ sort: "newest", view: "table" }, { sort: "newest", view: "table" }],
  ])("reads %j", (raw, search) => expect(fleetSearch(raw)).toEqual(search));

  it("does not change when it is parsed again", () => {
    const search = fleetSearch({ q: "x", attention: true, sort: "ends", view: "table" });
    expect(fleetSearch({ ...search })).toEqual(search);
    expect(fleetSearch({ q: "x".repeat(900) }).q).toHaveLength(200);
  });
});

describe("the filter", () => {
  const rows = [
    fleetRow("a", { name: "Triage", labels: { team: "ml" }, last_command: { text: "pytest -q", at: "", exit_code: 0 } }),
    fleetRow("b", { state: "paused", level: "strict", attention: 5 }),
    fleetRow("c", { owner: "", labels: { team: "web", run: "7" }, template: "node" }),
  ];
  it.each([
    [{}, ["a", "b", "c"]],
    [{ q: "TRIAGE" }, ["a"]],
    [{ q: "pytest py" }, ["a"]],
    [{ q: "pytest nothing" }, []],
    [{ q: "node" }, ["c"]],
    [{ q: "team=web" }, ["c"]],
    [{ state: "paused" }, ["b"]],
    [{ level: "strict" }, ["b"]],
    [{ owner: "key_1" }, ["a", "b"]],
    [{ label: "team" }, ["a", "c"]],
    [{ label: "team=ml" }, ["a"]],
    [{ label: "toString" }, []],
    [{ attention: true as const }, ["b"]],
    [{ q: "node", label: "run=7" }, ["c"]],
  ])("%j", (search, want) => expect(ids(filterFleet(rows, search))).toEqual(want));

  it("offers each value with its number of rows", () => {
    expect(choices(rows, (row) => [row.state])).toEqual([
      { value: "paused", count: 1 },
      { value: "running", count: 2 },
    ]);
    expect(choices(rows, (row) => [row.owner])).toEqual([{ value: "key_1", count: 2 }]);
  });
});

describe("the order", () => {
  const rows = [
    fleetRow("d", { name: "d", created_at: "2026-01-04T00:00:00Z" }),
    fleetRow("b", { name: "b", state: "stopped", ends_at: "2026-02-01T00:00:00Z" }),
    fleetRow("c", { name: "c", attention: 10, ends_at: "2026-01-09T00:00:00Z" }),
    fleetRow("a", { name: "a", attention: 900, state: "paused" }),
    fleetRow("e", { name: "a" }),
  ];
  it.each([
    ["attention", ["a", "c", "e", "d", "b"]],
    ["name", ["a", "e", "b", "c", "d"]],
    ["newest", ["d", "a", "e", "b", "c"]],
    ["ends", ["c", "b", "a", "e", "d"]],
    ["state", ["e", "c", "d", "a", "b"]],
  ] as const)("by %s", (sort, want) => {
    expect(ids(sortFleet(rows, sort))).toEqual(want);
    // The order of arrival does not move any row.
    expect(ids(sortFleet([...rows].reverse(), sort))).toEqual(want);
  });

  it("is kept while the pointer moves among the rows, with new ones at the end", () => {
    const sorted = sortFleet(rows, "attention");
    expect(ids(keepOrder(["b", "d", "gone", "a"], sorted))).toEqual(["b", "d", "a", "c", "e"]);
    expect(ids(keepOrder([], sorted))).toEqual(ids(sorted));
  });

  it("sorts a thousand quickly", () => {
    const many = Array.from({ length: 1_000 }, (_, i) => fleetRow(`sandbox${(i * 7919) % 1000}`, { attention: i % 7 }));
    let best = Infinity; // The best of several runs: in the others the process may have had to wait.
    for (let i = 0; i < 20; i++) {
      const began = performance.now();
      sortFleet(filterFleet(many, { q: "sandbox" }), "attention");
      best = Math.min(best, performance.now() - began);
    }
    expect(best).toBeLessThan(2_500);
  });
});

describe("the keys", () => {
  // 0 1 2
  // 3 4 5
  // 6
  it.each([
    ["j", 0, 1],
    ["j", 6, null],
    ["k", 0, null],
    ["ArrowDown", 0, 3],
    ["ArrowDown", 4, 6],
    ["ArrowDown", 6, null],
    ["ArrowUp", 4, 1],
    ["ArrowUp", 1, null],
    ["ArrowRight", 2, 3],
    ["ArrowLeft", 0, null],
    ["End", 0, 6],
    ["Home", 6, 0],
    ["PageDown", 0, 6],
    ["q", 0, null],
  ])("%s from %d goes to %s", (key, at, to) => expect(nextIndex(key, at, 7, 3)).toBe(to));

  it("has no left and right in a table", () => {
    expect([nextIndex("ArrowRight", 1, 7, 1), nextIndex("ArrowDown", 1, 7, 1)]).toEqual([null, 2]);
  });
});

describe("an action on many sandboxes", () => {
  it("reports each result, limits how many run at once, and continues after a failure", async () => {
    let now = 0;
    let maxRunning = 0;
    const outcomes = new Map<string, Outcome>();
    await forEach(
      Array.from({ length: 25 }, (_, i) => `sandbox${i}`),
      async (id) => {
        maxRunning = Math.max(maxRunning, ++now);
        await Promise.resolve();
        now--;
        if (id === "sandbox3") throw new ApiProblem(409, "state_conflict", "it is being paused");
      },
      (id, outcome) => outcomes.set(id, outcome),
    );
    expect([outcomes.size, maxRunning]).toEqual([25, 4]);
    expect([...outcomes].filter(([, o]) => o.state === "failed").map(([id]) => id)).toEqual(["sandbox3"]);
  });

  it("leaves out sandboxes whose state does not allow it", () => {
    const states = ["creating", "running", "paused", "stopped"];
    const fits = (act: keyof typeof acts) => states.filter((state) => acts[act].isPossible(fleetRow("a", { state })));
    expect(fits("pause")).toEqual(["running"]);
    expect(fits("resume")).toEqual(["paused"]);
    expect(fits("stop")).toEqual(["creating", "running", "paused"]);
  });
});
