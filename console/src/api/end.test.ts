import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { endSandbox } from "./end";

describe("ending a sandbox", () => {
  let state: string;
  let refusal: string;
  let ends: string; // the state that it is in by the time of the end
  const sent: string[] = [];
  beforeEach(() => {
    sent.length = 0;
    refusal = ends = "";
    vi.stubGlobal("fetch", async (request: Request) => {
      sent.push(request.method);
      if (request.method === "POST") {
        expect(new URL(request.url).pathname).toMatch(/\/v1\/sandboxes\/s1\/timeout$/);
        expect(await request.json()).toEqual({ seconds: 0 });
        if (ends) state = ends;
        if (refusal) return Response.json({ code: refusal, detail: "no", status: 404 }, { status: 404, headers: { "Content-Type": "application/problem+json" } });
        return Response.json({ id: "s1", state: "stopped" });
      }
      return request.method === "GET" ? Response.json({ id: "s1", state }) : new Response(null, { status: 204 });
    });
  });
  afterEach(() => vi.unstubAllGlobals());

  it("ends one that runs, one that is being made, and one that was paused when it was asked for", async () => {
    for (state of ["running", "creating", "pausing", "paused"]) expect(await endSandbox("s1", state)).toBe(true);
    expect(sent).toEqual(["GET", "POST", "GET", "DELETE", "GET", "DELETE", "GET", "DELETE"]);
  });

  it("forgets none that ended between the look and the end", async () => {
    state = "running";
    refusal = "sandbox_not_running";
    ends = "stopped";
    expect(await endSandbox("s1", "running")).toBe(false);
    expect(sent).toEqual(["GET", "POST", "GET"]);
  });

  it.each([
    ["sandbox_not_running", "pausing"],
    ["scope_too_small", "running"],
  ])("does not say that one has ended that has not: %s, %s", async (code, then) => {
    state = "running";
    refusal = code;
    ends = then;
    await expect(endSandbox("s1", "running")).rejects.toThrow("no");
    expect(sent).not.toContain("DELETE");
  });

  it("does not remove what is left of one that ended by itself", async () => {
    for (state of ["stopping", "stopped"]) expect(await endSandbox("s1", "running")).toBe(false);
    expect(sent).toEqual(["GET", "GET"]);
  });

  it("does not remove one that was paused in the meantime", async () => {
    for (state of ["pausing", "paused"]) await expect(endSandbox("s1", "running")).rejects.toThrow("It was paused in the meantime.");
    expect(sent).toEqual(["GET", "GET"]);
  });
});
