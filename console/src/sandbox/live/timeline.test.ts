import { describe, expect, it } from "vitest";
import { commandLine } from "./data";
import { duration, filtered, merge, type EntryLike, type FlowLike } from "./timeline";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
const flow = (seq: number, second: number, effect = "allow"): FlowLike => ({
  time: at(second), seq, kind: "http", method: "GET", host: "pypi.org", port: 443, path: "/simple/", effect, rule: "network.unlisted", reason: "no block",
});

describe("merge", () => {
  it("shows the start and the end of a command as one row", () => {
    const entries: EntryLike[] = [
      { seq: 2, time: at(1), kind: "command.started", data: { n: 1, how: "start", argv: ["sh", "-c", "make test"] } },
      { seq: 3, time: at(2), kind: "exec", data: { pid: 9, argv: ["make", "test"] } },
      { seq: 4, time: at(3), kind: "exit", data: { pid: 9, code: 2, took_ns: 1_500_000_000 } },
      { seq: 5, time: at(4), kind: "command.ended", data: { n: 1, exit: 2, duration_ms: 3000 } },
    ];
    const items = merge(entries, []);
    expect(items.map((i) => [i.title, i.detail, i.tone, i.nested ?? false])).toEqual([
      ["make test", "exit 2 · 3.0 s", "bad", false],
      ["make test", "exit 2 · 1.5 s", "warn", true],
    ]);
    expect(items[0]?.recording).toBe(1);
    expect(filtered(items, [], false)).toHaveLength(1);
  });

  it("sorts by the time of the event, not of its entry", () => {
    const items = merge(
      [
        { seq: 1, time: at(5), kind: "sandbox.paused", data: {} },
        { seq: 2, time: at(1), kind: "file", data: { path: "/a", op: "created" } },
      ],
      [flow(1, 3)],
    );
    expect(items.map((i) => i.kind)).toEqual(["files", "network", "lifecycle"]);
  });

  it("shows a flow once, by its entry as soon as it exists", () => {
    const live = flow(7, 2, "deny");
    const only = merge([], [live]);
    expect(only).toHaveLength(1);
    expect(only[0]?.seq).toBeUndefined();
    const both = merge([{ seq: 40, time: at(2), kind: "flow", data: { ...live } }], [live]);
    expect(both).toHaveLength(1);
    expect(both[0]).toMatchObject({ seq: 40, effect: "deny", tone: "bad", title: "GET pypi.org/simple/", detail: "network.unlisted", why: "no block" });
  });

  it("groups files that changed together", () => {
    const file = (seq: number, second: number, op = "created"): EntryLike => ({ seq, time: at(second), kind: "file", data: { path: `/f${seq}`, op } });
    const items = merge([file(1, 1), file(2, 1), file(3, 2), file(4, 2, "removed"), file(5, 20, "removed")], []);
    expect(items.map((i) => [i.title, i.more ?? []])).toEqual([
      ["/f1", ["/f2", "/f3"]],
      ["/f4", []],
      ["/f5", []],
    ]);
  });

  it("shows the lookups of one name as one row", () => {
    const dns = (seq: number, method: string, host: string, effect = "allow"): FlowLike => ({ time: at(1), seq, kind: "dns", method, host, effect, rule: "dns" });
    const items = merge([], [dns(1, "A", "a.example"), dns(2, "AAAA", "a.example"), dns(3, "A", "a.example"), dns(4, "AAAA", "b.example"), dns(5, "A", "b.example", "deny")]);
    expect(items.map((i) => [i.title, i.effect])).toEqual([
      ["AAAA, A a.example", "allow"],
      ["A a.example", "allow"],
      ["AAAA b.example", "allow"],
      ["A b.example", "deny"],
    ]);
  });

  it("accepts an end without a start, and data of any shape", () => {
    const malformed: unknown[] = [null, 7, "x", [], { argv: "rm", path: 5, n: "1", copies: [1] }];
    const kinds = ["command.started", "command.ended", "exec", "exit", "file", "flow", "gap", "limit.hit", "action", "approval.asked", "sandbox.copied", "new.kind"];
    let seq = 0;
    for (const kind of kinds) {
      for (const data of malformed) expect(() => merge([{ seq: seq++, time: at(1), kind, data }], [])).not.toThrow();
    }
    expect(merge([{ seq: 1, time: at(1), kind: "command.ended", data: { n: 3, exit: 1, duration_ms: 5 } }], [])[0]).toMatchObject({ tone: "bad", detail: "exit 1 · 5 ms" });
  });

  it("names who took control of a terminal, and from whom", () => {
    const entries: EntryLike[] = [
      { seq: 1, time: at(1), kind: "terminal.control", actor: "console:a", data: { pid: 9, do: "take" } },
      { seq: 2, time: at(2), kind: "terminal.control", actor: "console:b", data: { pid: 9, do: "take", displaced: "console:a" } },
      { seq: 3, time: at(3), kind: "terminal.control", actor: "console:b", data: { pid: 9, do: "release", left: true } },
    ];
    expect(merge(entries, []).map((i) => [i.kind, i.title, i.detail, i.tone, i.actor])).toEqual([
      ["people", "Took control of terminal 9", "", "quiet", "console:a"],
      ["people", "Took control of terminal 9", "from console:a", "warn", "console:b"],
      ["people", "Left and released terminal 9", "", "quiet", "console:b"],
    ]);
  });

  it("keeps only the kinds of a filter", () => {
    const items = merge([{ seq: 1, time: at(1), kind: "file", data: { path: "/a", op: "created" } }], [flow(1, 2)]);
    expect(filtered(items, ["network"], true).map((i) => i.kind)).toEqual(["network"]);
    expect(filtered(items, [], true)).toHaveLength(2);
  });
});

describe("commandLine", () => {
  it("shows the script of a shell, and quotes words that need it", () => {
    expect(commandLine(["/bin/bash", "-lc", "a | b"])).toBe("a | b");
    expect(commandLine(["echo", "it's", ""])).toBe(`echo 'it'\\''s' ''`);
  });
});

it("writes durations in a fitting unit", () => {
  expect([0.2, 12.4, 1500, 61_000].map(duration)).toEqual(["<1 ms", "12 ms", "1.5 s", "1 min 1 s"]);
});
