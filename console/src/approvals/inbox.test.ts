import { describe, expect, it } from "vitest";
import { byDeadline, clickCounts, emptyInbox, focusOn, GUARD_MS, keyCounts, move, reorder, shown } from "./inbox";

const at = (id: string, created: number, expires: number) => ({
  id,
  created_at: new Date(created).toISOString(),
  expires_at: new Date(expires).toISOString(),
});

describe("order", () => {
  it("puts the earliest deadline first, then the older request", () => {
    const list = [at("late", 0, 3000), at("b", 2, 1000), at("a", 1, 1000), at("0", 2, 1000)];
    expect(byDeadline(list).map((q) => q.id)).toEqual(["a", "0", "b", "late"]);
  });

  it("does not change the list that it is given", () => {
    const list = [at("b", 0, 2), at("a", 0, 1)];
    byDeadline(list);
    expect(list[0]?.id).toBe("b");
  });
});

describe("focus", () => {
  it("goes to the first request that arrives", () => {
    expect(reorder(emptyInbox(0), ["a"], 10)).toMatchObject({ focus: "a", focusedAt: 10 });
  });

  it("stays with its card when another appears above", () => {
    const before = reorder(emptyInbox(0), ["b"], 0);
    expect(reorder(before, ["a", "b"], 1000)).toMatchObject({ focus: "b", focusedAt: 0 });
  });

  it("goes to the card below when its own is decided, and to the last from the end", () => {
    const three = focusOn(reorder(emptyInbox(0), ["a", "b", "c"], 0), "b", 1);
    const two = reorder(three, ["a", "c"], 50);
    expect(two).toMatchObject({ focus: "c", focusedAt: 50 });
    expect(reorder(two, ["a"], 60)).toMatchObject({ focus: "a", focusedAt: 60 });
    expect(reorder(two, [], 60).focus).toBeNull();
  });

  it("skips cards that were removed at the same time", () => {
    const three = reorder(emptyInbox(0), ["a", "b", "c"], 0);
    expect(reorder(three, ["c"], 1).focus).toBe("c");
  });

  it("moves with the keys and stops at the ends", () => {
    const two = reorder(emptyInbox(0), ["a", "b"], 0);
    expect(move(two, 1, 5)).toMatchObject({ focus: "b", focusedAt: 5 });
    expect(move(move(two, 1, 5), 1, 9)).toMatchObject({ focus: "b", focusedAt: 5 });
    expect(move(two, -1, 5)).toBe(two);
    expect(move(emptyInbox(0), 1, 5).focus).toBeNull();
  });

  it("does not move to a card that does not exist", () => {
    const one = reorder(emptyInbox(0), ["a"], 0);
    expect(focusOn(one, "x", 5)).toBe(one);
  });
});

describe("guard", () => {
  it("lets no key decide on a card that has just appeared", () => {
    const one = reorder(emptyInbox(0), ["a"], 1000);
    expect(keyCounts(one, 1000, 1000 + GUARD_MS - 1)).toBe(false);
    expect(keyCounts(one, 1000, 1000 + GUARD_MS)).toBe(true);
  });

  it("starts again when the focus moves on after a decision", () => {
    const two = reorder(emptyInbox(0), ["a", "b"], 0);
    const rest = reorder(two, ["b"], 5000);
    expect(rest.focus).toBe("b");
    expect(keyCounts(rest, 0, 5100)).toBe(false);
    expect(keyCounts(rest, 0, 5400)).toBe(true);
  });

  it("lets no key decide on a card that is out of view", () => {
    const one = reorder(emptyInbox(0), ["a"], 0);
    expect(keyCounts(one, null, 9000)).toBe(false);
    expect(keyCounts(one, 8900, 9000)).toBe(false);
  });

  it("starts again when the page becomes visible", () => {
    const one = shown(reorder(emptyInbox(0), ["a"], 0), 9000);
    expect(keyCounts(one, 0, 9100)).toBe(false);
    expect(clickCounts(one, "a", 9100)).toBe(false);
    expect(clickCounts(one, "a", 9400)).toBe(true);
  });

  it("counts no click on a card that has just slid under the pointer", () => {
    const two = reorder(emptyInbox(0), ["a", "b"], 0);
    const rest = reorder(two, ["b"], 5000);
    expect(clickCounts(rest, "b", 5100)).toBe(false);
    expect(clickCounts(rest, "b", 5400)).toBe(true);
    expect(clickCounts(rest, "a", 9000)).toBe(false);
  });

  it("does not delay a card that did not move", () => {
    const two = reorder(emptyInbox(0), ["a", "b"], 0);
    const rest = reorder(two, ["a"], 5000);
    expect(clickCounts(rest, "a", 5001)).toBe(true);
  });
});
