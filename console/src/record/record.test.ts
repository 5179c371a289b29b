import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { kindGroups, summaryOf, toneOf, type Entry } from "./entry";
import { hasKind, isFiltered, matchesFilter, queryOf, readSearch, timeOf, toggleKinds, withChange } from "./filter";
import { merge, readPage } from "./pages";
import { verdictOf } from "./verdict";

const entry = (seq: number, over: Partial<Entry> = {}): Entry => ({ seq, time: "2030-01-01T00:00:00Z", prev: "", kind: "exec", ...over });

describe("filter in the URL", () => {
  it("survives a round trip, and drops unknown fields", () => {
    const search = { sandbox: "s1", kind: "flow,exec", actor: "key:1", since: "2h", until: "2030-01-01T00:00:00.000Z", text: "curl", paused: true };
    expect(readSearch({ ...search, evil: "x" })).toEqual(search);
  });

  it("accepts names that the router parsed as numbers", () => {
    expect(readSearch({ sandbox: 12, text: 0 })).toEqual({ sandbox: "12", text: "0" });
    expect(readSearch({ sandbox: { a: 1 }, kind: "", paused: "no" })).toEqual({});
  });

  it("removes a filter", () => {
    expect(withChange({ text: "a", kind: "exec" }, { text: undefined })).toEqual({ kind: "exec" });
    expect(isFiltered({ paused: true })).toBe(false);
    expect(isFiltered({ text: "a" })).toBe(true);
  });

  it("parses points in time and durations", () => {
    const now = Date.parse("2030-01-02T00:00:00Z");
    expect(timeOf("2h", now)).toBe("2030-01-01T22:00:00.000Z");
    expect(timeOf("1d", now)).toBe("2030-01-01T00:00:00.000Z");
    expect(timeOf("2029-12-31T12:00:00Z", now)).toBe("2029-12-31T12:00:00.000Z");
    expect(timeOf("soon", now)).toBeNull();
    expect(queryOf({ since: "soon", kind: "flow" }, now)).toMatchObject({ query: { kind: "flow" }, errors: [expect.stringContaining("soon")] });
  });

  it("expands groups of kinds", () => {
    expect(hasKind("sandbox", "sandbox.ended")).toBe(true);
    expect(hasKind("sandbox.ended", "sandbox.started")).toBe(false);
    expect(hasKind("exec,flow", "flow")).toBe(true);
    const all = toggleKinds("", ["flow"]);
    expect(all).toBe("flow");
    expect(toggleKinds("flow,exec", ["flow"])).toBe("exec");
    expect(toggleKinds("approval", ["approval.voted"]).split(",")).toHaveLength(3);
  });

  it("has each kind of the server in one group", () => {
    const kinds = kindGroups.flatMap((g) => g.kinds);
    const server = readFileSync(resolve("../internal/audit/entry.go"), "utf8");
    const known = [...server.matchAll(/Kind\s+= "([\w.]+)"/g)].map((m) => m[1]);
    expect(known.length).toBeGreaterThan(20);
    expect(kinds.toSorted()).toEqual(known.toSorted());
  });

  it("filters live entries in the same way", () => {
    const e = entry(7, { sandbox: "s1", actor: "key:abc", kind: "flow", data: { host: "Example.com" } });
    expect(matchesFilter(e, { sandbox: "s1", kind: "flow", actor: "abc", text: "example" }, {})).toBe(true);
    expect(matchesFilter(e, { sandbox: "s2" }, {})).toBe(false);
    expect(matchesFilter(e, { kind: "exec" }, {})).toBe(false);
    expect(matchesFilter(e, { actor: "local" }, {})).toBe(false);
    expect(matchesFilter(e, { text: "other" }, {})).toBe(false);
    expect(matchesFilter(e, {}, { since: "2030-01-01T00:00:01Z" })).toBe(false);
    expect(matchesFilter(e, {}, { until: "2030-01-01T00:00:00Z" })).toBe(false);
  });
});

describe("reading backwards", () => {
  const all = Array.from({ length: 1000 }, (_, seq) => entry(seq));
  const read = vi.fn(async (before: number | undefined, limit: number) => all.slice(0, before ?? all.length).slice(-limit));

  it("reads one page and returns where the next one starts", async () => {
    const page = await readPage(read, () => true, undefined, 100);
    expect(page.entries[0]?.seq).toBe(800);
    expect(page.before).toBe(800);
  });

  it("continues until there are enough matches", async () => {
    const page = await readPage(read, (e) => e.seq % 100 === 0, undefined, 5);
    expect(page.entries.map((e) => e.seq)).toEqual([400, 500, 600, 700, 800, 900]);
    expect(page.before).toBe(400);
  });

  it("ends at the first entry", async () => {
    expect(await readPage(read, (e) => e.seq === 3, 100, 5)).toEqual({ entries: [all[3]], before: null });
    expect(await readPage(async () => [], () => true, undefined, 5)).toEqual({ entries: [], before: null });
  });

  it("ends a search without a match", async () => {
    const long = async (before: number | undefined) => Array.from({ length: 200 }, (_, i) => entry((before ?? 100_000) - 200 + i));
    const page = await readPage(long, () => false, undefined, 5);
    expect(page).toEqual({ entries: [], before: 98_000 });
  });

  it("merges entries that were read with live ones", () => {
    expect(merge([entry(1), entry(2)], [entry(2), entry(3)]).map((e) => e.seq)).toEqual([3, 2, 1]);
  });
});

describe("verification", () => {
  it("is described in words", () => {
    expect(verdictOf({ ok: true, entries: 17, first: 0, checkpoints: 1, uncovered: 2 })).toEqual({
      ok: true,
      title: "17 entries from number 0 on are unchanged",
      detail: "1 signed tree head agrees. 2 entries are newer than the newest signed tree head.",
    });
  });

  it("names the damaged entry, also number 0", () => {
    const bad = { ok: false, entries: 5, first: 0, checkpoints: 0 };
    expect(verdictOf({ ...bad, seq: 12, fault: "changed", text: "why" })).toMatchObject({ seq: 12, detail: "why", title: expect.stringContaining("Entry 12") });
    expect(verdictOf({ ...bad, fault: "missing" })).toMatchObject({ seq: 0 });
    expect(verdictOf({ ...bad, fault: "unsigned" }).seq).toBeUndefined();
    expect(verdictOf({ ...bad, fault: "something new" })).toMatchObject({ ok: false, title: expect.any(String) });
  });
});

describe("lines", () => {
  it("describe the event", () => {
    expect(summaryOf(entry(1, { data: { argv: ["ls", "-l"] } }))).toBe("ls -l");
    expect(summaryOf(entry(1, { kind: "flow", data: { effect: "deny", method: "GET", host: "a.com", path: "/x", rule: "network.unlisted" } }))).toBe("deny GET a.com/x rule network.unlisted");
    expect(summaryOf(entry(1, { kind: "action", data: { do: "create", outcome: "not_found", ref: "x" } }))).toBe("create x refused: not_found");
    expect(summaryOf(entry(1, { kind: "command.started", data: { how: "cell", language: "python", code: "6*7" } }))).toBe("cell python 6*7");
    const ended = (data: object) => summaryOf(entry(1, { kind: "command.ended", data }));
    expect(ended({ exit: 0 })).toBe("exit code 0");
    expect(ended({ exit: 137, signal: 9, hit: "oom" })).toBe("ended by signal 9 reached the limit oom");
    expect(ended({ lost: true })).toBe("the end was not received");
    expect(ended({})).toBe("no exit code");
  });

  it("accept data of unexpected types", () => {
    for (const kind of [...kindGroups.flatMap((g) => g.kinds), "unheard.of"]) {
      for (const data of [undefined, null, 3, "x", [1], { argv: { a: 1 }, host: [], effect: 7 }]) {
        expect(typeof summaryOf(entry(1, { kind, data }))).toBe("string");
        expect(typeof toneOf(entry(1, { kind, data }))).toBe("string");
      }
    }
  });

  it("mark refused actions", () => {
    expect(toneOf(entry(1, { kind: "flow", data: { effect: "deny" } }))).toBe("bad");
    expect(toneOf(entry(1, { kind: "action", data: { outcome: "ok" } }))).toBe("quiet");
  });
});
