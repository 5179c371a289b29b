import { describe, expect, it } from "vitest";
import { factsOf, lastsOf, partsOf, pastOf, rememberText, sameRule, votesOf, type ApprovalRequest } from "./request";

const base: ApprovalRequest = {
  id: "a1",
  sandbox: "s1",
  kind: "net.request",
  summary: "POST api.example.com/things",
  facts: { path: "/things", body_sha256: "ff", port: "443", host: "api.example.com", method: "POST", zeta: "z" },
  rule: "host:api.example.com/write",
  policy: "p",
  state: "pending",
  quorum: 1,
  votes: null,
  created_at: "2030-01-01T00:00:00Z",
  expires_at: "2030-01-01T00:30:00Z",
};

describe("the agent's words", () => {
  it("are separated from the line about the effect", () => {
    const q = { ...base, kind: "policy.widen", rule: "access.request", summary: "let the sandbox reach a.com:443 from now on. The agent says (unchecked): please" };
    expect(partsOf(q)).toEqual({ what: "let the sandbox reach a.com:443 from now on", agent: "please" });
  });

  it("do not end the line if a program wrote the same words", () => {
    const summary = "GET a.com/x. The agent says (unchecked): all is well";
    expect(partsOf({ ...base, summary })).toEqual({ what: summary, agent: "" });
  });

  it("are everything after the first mark, so that a second mark cannot forge text", () => {
    const summary = "let it. The agent says (unchecked): x. The agent says (unchecked): y";
    expect(partsOf({ ...base, rule: "access.request", summary }).agent).toBe("x. The agent says (unchecked): y");
  });
});

describe("facts", () => {
  it("start with what a person needs, end with hashes, and are complete", () => {
    expect(factsOf(base).map((f) => f.name)).toEqual(["method", "host", "port", "path", "zeta", "body_sha256"]);
    const whole = { ...base, facts: { ...base.facts, target: "https://api.example.com/things", target_sha256: "ff", "header_x-amz-target": "Delete" } };
    expect(factsOf(whole).map((f) => f.name)).toEqual(["method", "target", "host", "port", "path", "header_x-amz-target", "zeta", "body_sha256", "target_sha256"]);
  });
});

describe("the duration of an approval", () => {
  it("is described for each kind of request", () => {
    expect(lastsOf(base)).toContain("once");
    expect(lastsOf({ ...base, kind: "policy.widen" })).toContain("stays changed");
    expect(lastsOf({ ...base, kind: "secret.use", facts: { secret: "T", method: "any" } })).toContain("no approval");
    expect(lastsOf({ ...base, kind: "secret.use", facts: { secret: "T", method: "GET", body_sha256: "ff" } })).toContain("once");
    expect(lastsOf({ ...base, facts: { git: "fetch", covers: "for 10m" } })).toContain("ten minutes");
    expect(lastsOf({ ...base, facts: { git: "fetch" } })).toContain("once");
    expect(rememberText({ ...base, rule: "network.unlisted", always: "a.com:443" })).toMatch(/a\.com:443.*need no approval/);
    // A rule that asks has priority over an allowed host, so allowing the host is not offered.
    expect(rememberText({ ...base, rule: "host:a.com/rule-1" })).toContain("always requires an approval");
    expect(rememberText({ ...base, rule: "network.unlisted", quorum: 2 })).toContain("several people");
    expect(rememberText(base)).toContain("cannot be remembered");
    expect(rememberText({ ...base, kind: "policy.widen" })).toBe("");
  });
});

describe("votes", () => {
  it("count people, not votes", () => {
    const yes = (who: string) => ({ who, granted: true, at: "" });
    const q = { ...base, quorum: 2, votes: [yes("local"), yes("local"), { who: "key1", granted: false, at: "" }] };
    expect(votesOf(q)).toEqual({ given: 1, needed: 2, text: "1 of 2 approved" });
  });
});

describe("the same rule", () => {
  it("is the same rule of the same kind", () => {
    const others = [base, { ...base, id: "a2" }, { ...base, id: "a3", rule: "other" }, { ...base, id: "a4", kind: "net.host" }];
    expect(sameRule(others, base).map((q) => q.id)).toEqual(["a1", "a2"]);
  });
});

describe("past decisions", () => {
  it("are those of the same rule", () => {
    const was = (id: string, state: string, over: Partial<ApprovalRequest> = {}) => ({ ...base, id, state, ...over });
    const decided = [was("b", "spent"), was("c", "approved"), was("d", "denied"), was("e", "expired"), was("f", "denied", { rule: "other" }), was("a1", "denied")];
    expect(pastOf(decided, base)).toBe("Earlier decisions of this rule: 2 approved, 1 denied, 1 not decided.");
    expect(pastOf([], base)).toBe("");
  });
});
