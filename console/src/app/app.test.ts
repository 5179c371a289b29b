import { describe, expect, it } from "vitest";
import { asProblem, problemOf } from "../api/problem";
import { covers } from "../api/session";
import { largest, sparkPath } from "../parts/sparkline";
import { tokenIn } from "../signin/page";
import { takeToken } from "../signin/token";
import { faviconSVG } from "./favicon";
import { best, score } from "./match";
import { navItems, within } from "./nav";

describe("the token of the address", () => {
  const takeTokenAt = (path: string) => {
    history.replaceState({ a: 1 }, "", path);
    return takeToken();
  };
  it("is taken once and removed from the address", () => {
    expect(takeTokenAt("/console/approvals?x=1#token=abcdefghijklmnop_-09")).toBe("abcdefghijklmnop_-09");
    expect(location.pathname + location.search + location.hash).toBe("/console/approvals?x=1");
    expect(history.state).toEqual({ a: 1 });
    expect(takeToken()).toBeNull();
  });
  it.each(["#token=short", "#token=", "#token=<script>alert(1)</script>", `#token=${"a".repeat(300)}`])("is not taken from %s, which is removed too", (hash) => {
    expect(takeTokenAt(`/console/${hash}`)).toBeNull();
    expect(location.hash).toBe("");
  });
  it("keeps another fragment", () => {
    expect(takeTokenAt("/console/#entry-7")).toBeNull();
    expect(location.hash).toBe("#entry-7");
  });
  it("is found in a pasted link", () => {
    expect(tokenIn(" http://127.0.0.1:7070/console/#token=abc \n")).toBe("abc");
    expect(tokenIn(" abc ")).toBe("abc");
  });
});

describe("scopes", () => {
  it("include the scopes below them", () => {
    const all = ["viewer", "operator", "admin"] as const;
    expect(all.map((has) => all.filter((needs) => covers(has, needs)).length)).toEqual([1, 2, 3]);
  });
});

describe("problems", () => {
  it("show the text of the server", () => {
    const problem = problemOf(403, { code: "scope_too_small", title: "denied", detail: "it needs operator", hint: "ask" });
    expect([problem.status, problem.code, problem.text, problem.hint]).toEqual([403, "scope_too_small", "it needs operator", "ask"]);
  });
  it.each([undefined, null, "<html>bad gateway</html>".repeat(50), { code: 7, detail: {} }])("have a text for %j", (body) => {
    expect(problemOf(502, body).text).toBe("The server answered 502.");
  });
  it("recognize an unreachable server", () => {
    expect(asProblem(new TypeError("Failed to fetch")).code).toBe("network");
    expect(asProblem(new Error("x")).code).toBe("console");
  });
});

describe("the palette", () => {
  it("finds all words, and ranks a match at the start first", () => {
    expect(score("triage-12", "bench")).toBe(0);
    expect(score("Theme: dark", "dark theme")).toBeGreaterThan(0);
    const names = ["subtriage", "my triage", "triage-2"];
    expect(best(names, "triage", (n) => n, 9)).toEqual(["triage-2", "my triage", "subtriage"]);
    expect(best(names, "", (n) => n, 2)).toHaveLength(2);
  });
});

describe("the navigation", () => {
  it("marks the current page", () => {
    const at = (path: string) => navItems.filter((p) => within(path, p.to)).map((p) => p.label);
    expect(at("/")).toEqual(["Fleet"]);
    expect(at("/s/abc/terminal")).toEqual(["Fleet"]);
    expect(at("/approvals/a1")).toEqual(["Approvals"]);
    expect(at("/recordings")).toEqual([]);
  });
});

describe("drawings", () => {
  it("show a number on the tab's icon", () => {
    expect(faviconSVG(0)).not.toContain("<text");
    expect(faviconSVG(3)).toContain(">3</text>");
    expect(faviconSVG(1_000)).toContain(">99</text>");
  });
  it("draw a line from the left, the newest at the right edge", () => {
    expect(sparkPath([], 1, 100, 22)).toBe("");
    expect(sparkPath([0, 0.5, 1], 1, 100, 22)).toBe("M0.0 21.0L50.0 11.0L100.0 1.0");
    expect(sparkPath([5], 1, 100, 22, 60)).toBe("M100.0 1.0");
    expect(sparkPath([-1, Number.NaN], 0, 100, 22)).toBe("M0.0 21.0");
    // There is no line where nothing was measured.
    expect(sparkPath([1, Number.NaN, 0, 1], 1, 99, 22)).toBe("M0.0 1.0M66.0 21.0L99.0 1.0");
    expect(largest([2, Number.NaN, 1])).toBe(2);
  });
});
