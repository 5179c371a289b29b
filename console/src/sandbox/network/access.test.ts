import { describe, expect, it } from "vitest";
import { accessLines, accessOf, CannotEdit, diffLines, withRule, type Layer } from "./access";
import { outline } from "../policy/outline";

const level: Layer = { kind: "level", document: "policy: v1\nname: level/standard\nlevel: standard\nnetwork:\n    unlisted: ask\n" };
const levelLayer: Layer = { kind: "task", document: "policy: v1\nname: level\nlevel: standard\n" };
const none: Layer = { kind: "task", document: "policy: v1\nname: net/none\nnetwork:\n    unlisted: deny\n" };
const list: Layer = {
  kind: "task",
  document: "policy: v1\nname: net/hosts\nnetwork:\n    hosts:\n        - host: example.org\n          ports:\n            - 443\n            - 8443\n          rules:\n            - id: allow\n              do: allow\n        - addresses:\n            - 10.1.0.0/16\n          tunnel: true\n          ports:\n            - 22\n          rules:\n            - id: allow\n              do: allow\n",
};
const own: Layer = { kind: "task", document: "policy: v1\nname: agent\nnetwork:\n    hosts:\n        - host: api.github.com\n          rules:\n            - id: read\n              do: allow\n" };
const artifacts: Layer = { kind: "task", document: "policy: v1\nname: artifacts\nfilesystem:\n    export:\n        only:\n            - dist/**\n" };

const asPorts = (document = "") => (outline(document)["network"] as { hosts: { ports?: string[] }[] }).hosts.map((block) => block.ports);

describe("accessOf", () => {
  it("reconstructs the access that a sandbox was created with", () => {
    expect(accessOf("policy", [level, list, levelLayer, own, artifacts])).toEqual({
      net: "policy", level: "standard", allow: ["example.org:443", "example.org:8443", "10.1.0.0/16:22"], policy: own.document, artifacts: ["dist/**"],
    });
    expect(accessOf("dev", [level, { kind: "task", document: "policy: v1\nname: net/dev\nnetwork:\n    unlisted: deny\n" }, levelLayer])).toEqual({ net: "dev", level: "standard" });
  });

  it("keeps hosts denied that a list of hosts denied", () => {
    expect(accessOf("policy", [level, list, none]).policy).toBe(none.document);
    const both = accessOf("policy", [level, list, none, own]);
    expect(outline(both.policy ?? "")["network"]).toMatchObject({ unlisted: "deny" });
    const denied = withRule(accessOf("policy", [level, list, none]), { effect: "deny", host: "evil.example", port: 443 });
    expect(outline(denied.policy ?? "")["network"]).toMatchObject({ unlisted: "deny", hosts: [{ host: "evil.example" }] });
  });

  it("refuses access that it cannot reconstruct exactly", () => {
    const expectRefused = (net: string, ...layers: Layer[]) => expect(() => accessOf(net, layers)).toThrow(CannotEdit);
    expectRefused("none", level);
    expectRefused("policy", own, { ...own, document: own.document.replace("agent", "other") });
    expectRefused("policy", { kind: "task", document: "policy: v1\nname: net/e2b-files\n" });
    expectRefused("policy", { kind: "task", document: "policy: v1\nname: x\nsecrets:\n    bind:\n        - name: e2b.header.1\n" });
    expectRefused("policy", { kind: "task", document: "policy: v1\nname: x\nnote: |\n    text\n" });
  });
});

describe("withRule", () => {
  it("adds an allowed host once", () => {
    const access = accessOf("policy", [level, list, levelLayer, own]);
    const wider = withRule(access, { effect: "allow", host: "pypi.org", port: 443 });
    expect(wider).toEqual({ ...access, allow: [...(access.allow ?? []), "pypi.org:443"] });
    expect(withRule(wider, { effect: "allow", host: "pypi.org", port: 443 })).toEqual(wider);
  });

  it("denies a host in its own document, and takes it off the list", () => {
    const access = accessOf("policy", [level, list, levelLayer, own]);
    const tighter = withRule(access, { effect: "deny", host: "example.org", port: 443 });
    expect(tighter.allow).toEqual(["example.org:8443", "10.1.0.0/16:22"]);
    expect(outline(tighter.policy ?? "")["network"]).toEqual({
      hosts: [
        { host: "example.org", ports: ["443"], rules: [{ id: "console-deny", do: "deny" }] },
        { host: "api.github.com", rules: [{ id: "read", do: "allow" }] },
      ],
    });
    expect(() => withRule(tighter, { effect: "deny", host: "example.org", port: 443 })).toThrow("denied already");
  });

  it("replaces the rules of the block that applies to the host", () => {
    const access = accessOf("policy", [level, levelLayer, own]);
    const tighter = withRule(access, { effect: "deny", host: "api.github.com", port: 443 });
    expect(outline(tighter.policy ?? "")["network"]).toEqual({
      hosts: [{ host: "api.github.com", rules: [{ id: "console-deny", do: "deny" }] }],
    });
    expect(() => withRule(tighter, { effect: "deny", host: "api.github.com", port: 443 })).toThrow("denied already");
    const other = withRule(tighter, { effect: "deny", host: "api.github.com", port: 8443 });
    expect(asPorts(other.policy)).toEqual([["8443"], undefined]);
    const two = { ...own, document: own.document.replace("          rules:", "          ports:\n            - 443\n            - 80\n          rules:") };
    expect(() => withRule(accessOf("policy", [two]), { effect: "deny", host: "api.github.com", port: 80 })).toThrow("several ports");
  });

  it("removes a denial that was added here, and no other", () => {
    const ruleRequest = { host: "evil.example", port: 443 };
    for (const access of [accessOf("policy", [level, levelLayer, own]), { net: "dev" as const }, accessOf("policy", [list, none])]) {
      const denied = withRule(access, { ...ruleRequest, effect: "deny" });
      const back = withRule(denied, { ...ruleRequest, effect: "allow" });
      expect(back.allow).toContain("evil.example:443");
      expect(back.policy).not.toContain("evil");
      expect(() => outline(back.policy ?? "")).not.toThrow();
      expect(back.policy ?? "").toBe(access.net === "dev" ? "policy: v1\nname: console\n" : (access as { policy?: string }).policy);
    }
    const unrelated = withRule(accessOf("policy", [own]), { effect: "allow", host: "api.github.com", port: 443 });
    expect(unrelated.policy).toBe(own.document);
  });

  it("creates a document if there is none", () => {
    expect(outline(withRule({ net: "dev" }, { effect: "deny", host: "a.example", port: 8080 }).policy ?? "")).toEqual({
      policy: "v1", name: "console", network: { hosts: [{ host: "a.example", ports: ["8080"], rules: [{ id: "console-deny", do: "deny" }] }] },
    });
    const half = withRule({ net: "policy", policy: "policy: v1\nname: x\nnetwork:\n    unlisted: deny\ngit:\n    fetch: deny\n" }, { effect: "deny", host: "a", port: 1 });
    expect(outline(half.policy ?? "")).toMatchObject({ network: { unlisted: "deny" }, git: { fetch: "deny" } });
  });

  it("refuses a host that is not exactly one host", () => {
    for (const host of ["a\n  do: allow", "a: b", "a b", "", "#x"]) {
      expect(() => withRule({ net: "dev" }, { effect: "deny", host, port: 443 })).toThrow(CannotEdit);
    }
  });
});

it("shows what a draft would change", () => {
  const before = accessOf("policy", [level, list, levelLayer, own]);
  const lines = diffLines(accessLines(before), accessLines(withRule(before, { effect: "deny", host: "example.org", port: 443 })));
  expect(lines.filter((l) => l.kind === "removed").map((l) => l.text)).toEqual(["allow: example.org:443"]);
  expect(lines.filter((l) => l.kind === "added").map((l) => l.text.trim())).toContain("- host: example.org");
  expect(diffLines(["a", "b", "c"], ["a", "x", "c"]).map((l) => l.kind)).toEqual(["same", "removed", "added", "same"]);
});
