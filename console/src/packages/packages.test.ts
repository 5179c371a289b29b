import { describe, expect, it } from "vitest";
import type { Entry } from "../record/entry";
import { answerOf, matchesAnswer, sourceOf } from "./answers";
import { filterCached, nameOf, parseSize, share, sortCached, totalsOf, usedBytes, type Cached } from "./cache";
import { packageSearch } from "./search";

function cached(name: string, more: Partial<Cached> = {}): Cached {
  return {
    url: `https://registry.npmjs.org/${name}`, ecosystem: "npm", name, sha256: name.padEnd(64, "0"), size_bytes: 10,
    fetched_at: "2030-01-01T00:00:00Z", used_at: "2030-01-01T00:00:00Z", ...more,
  };
}

describe("the content of the cache", () => {
  const all = [
    cached("left", { version: "1.0.0", sha256: "a", size_bytes: 100, url: "https://r.test/left.tgz", used_at: "2030-01-03T00:00:00Z" }),
    cached("left", { sha256: "b", size_bytes: 7, fetched_at: "2030-01-02T00:00:00Z" }),
    cached("left", { version: "1.0.0", sha256: "a", size_bytes: 100, url: "https://mirror.test/left.tgz" }),
    cached("serde", { ecosystem: "crates", version: "1.0.1", sha256: "c", size_bytes: 50 }),
  ];

  it("is counted by ecosystem, a content that two URLs share once", () => {
    expect(totalsOf(all)).toEqual([
      { ecosystem: "crates", packages: 1, files: 1, documents: 0, bytes: 50 },
      { ecosystem: "npm", packages: 1, files: 2, documents: 1, bytes: 107 },
    ]);
    expect(usedBytes(all)).toBe(157);
    expect(totalsOf([])).toEqual([]);
  });

  it("is filtered by words and ecosystem", () => {
    const found = (q: string, ecosystem = "") => filterCached(all, { q, ecosystem }).map((p) => p.url);
    expect(found("")).toHaveLength(4);
    expect(found("NPM:left@1.0")).toHaveLength(2);
    expect(found("left mirror")).toEqual(["https://mirror.test/left.tgz"]);
    expect(found("left", "crates")).toEqual([]);
    expect(found("", "crates")).toEqual(["https://registry.npmjs.org/serde"]);
  });

  it("is sorted without changing the given list", () => {
    const names = (sort: Parameters<typeof sortCached>[1]) => sortCached(all, sort).map((p) => `${p.name}/${p.sha256}/${new URL(p.url).host}`);
    expect(names("name")[0]).toBe("serde/c/registry.npmjs.org");
    expect(names("largest").slice(0, 2)).toEqual(["left/a/mirror.test", "left/a/r.test"]);
    expect(names("fetched")[0]).toBe("left/b/registry.npmjs.org");
    expect(names("used")[0]).toBe("left/a/r.test");
    expect(all[0]?.url).toBe("https://r.test/left.tgz");
  });

  it("has names as in policies", () => {
    expect(all.slice(0, 2).map(nameOf)).toEqual(["npm:left@1.0.0", "npm:left"]);
  });

  it("has a budget of which a share is used", () => {
    expect([share(5, 10), share(20, 10), share(0, 0), share(1, 0)]).toEqual([0.5, 1, 0, 1]);
  });
});

describe("a size", () => {
  it.each([["0", 0], ["10", 10], ["1k", 1024], ["1.5g", 1.5 * 1024 ** 3], [" 64 KiB ", 65536], ["2mb", 2 * 1024 ** 2]])("reads %j", (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });
  it.each(["", "g", "-1", "1e9", "1.2.3", "0x10", "1 g b", "99999999999t", "NaN", "Infinity"])("rejects %j", (text) => {
    expect(parseSize(text)).toBeNull();
  });
});

describe("an answer", () => {
  const entry = (data: unknown, more: Partial<Entry> = {}): Entry => ({ seq: 7, time: "2030-01-01T00:00:00Z", prev: "", kind: "flow", sandbox: "i1", data, ...more });
  const fact = { ecosystem: "npm", name: "evil", version: "1.0.0", verdict: "refused" };
  const refused = entry({ rule: "packages.deny", reason: "the policy denies it", package: fact });

  it("has the package, the verdict, the rule and the source", () => {
    expect(answerOf(refused)).toMatchObject({ seq: 7, sandbox: "i1", name: "evil", version: "1.0.0", verdict: "refused", rule: "packages.deny", reason: "the policy denies it", cached: false });
    const source = (more: object) => sourceOf(answerOf(entry({ package: { ...fact, ...more } }))!);
    expect([source({}), source({ verdict: "passed" }), source({ verdict: "filtered", cached: true })]).toEqual(["not served", "registry", "cache"]);
  });

  it.each([
    ["another kind", entry({ package: fact }, { kind: "action" })],
    ["no fact", entry({ rule: "x" })],
    ["the first entry of an action", entry({ begins: true, package: fact })],
    ["an unknown verdict", entry({ package: { ...fact, verdict: "<b>" } })],
    ["a fact that is a list", entry({ package: [fact] })],
    ["data that is text", entry("package")],
    ["no data", entry(undefined)],
  ])("is not in an entry with %s", (_, e) => {
    expect(answerOf(e)).toBeNull();
  });

  it("has only texts, of bounded length", () => {
    const answer = answerOf(entry({ rule: {}, reason: 7, package: { ...fact, name: "x".repeat(1e5), version: ["1"], withheld: ["2.0.0", 3, null], scripts: "all", findings: ["escape: x", {}], cached: "yes" } }));
    expect(answer).toMatchObject({ rule: "", reason: "", version: "", withheld: ["2.0.0"], scripts: [], findings: ["escape: x"], cached: false });
    expect(answer?.name).toHaveLength(2000);
  });

  it("is selected by verdict, ecosystem and words", () => {
    expect(matchesAnswer(refused, {})).toBe(true);
    expect(matchesAnswer(refused, { verdict: "refused", ecosystem: "npm", q: "EVIL deny" })).toBe(true);
    expect(matchesAnswer(refused, { verdict: "passed" })).toBe(false);
    expect(matchesAnswer(refused, { ecosystem: "go" })).toBe(false);
    expect(matchesAnswer(refused, { q: "good" })).toBe(false);
    expect(matchesAnswer(entry({ rule: "x" }), {})).toBe(false);
  });
});

describe("the address", () => {
  it("keeps known fields only", () => {
    expect(packageSearch({ view: "answers", q: 12, ecosystem: "npm", sort: "largest", verdict: "refused", other: 1 })).toEqual({ view: "answers", q: "12", ecosystem: "npm", sort: "largest", verdict: "refused" });
    expect(packageSearch({ view: "x", q: {}, sort: "name", verdict: "all" })).toEqual({});
    expect(packageSearch({ q: "x".repeat(500) }).q).toHaveLength(200);
  });
});
