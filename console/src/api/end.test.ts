import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { endSandbox } from "./end";

describe("ending a sandbox", () => {
  let state: string;
  let refusal: string;
  let stateAtEnd: string; // the state when the request arrives
  const sent: string[] = [];
  beforeEach(() => {
    sent.length = 0;
    refusal = stateAtEnd = "";
    vi.stubGlobal("fetch", async (request: Request) => {
      sent.push(request.method);
      if (request.method === "POST") {
        expect(new URL(request.url).pathname).toMatch(/\/v1\/sandboxes\/s1\/timeout$/);
        expect(await request.json()).toEqual({ seconds: 0 });
        if (stateAtEnd) state = stateAtEnd;
        if (refusal) return Response.json({ code: refusal, detail: "no", status: 404 }, { status: 404, headers: { "Content-Type": "application/problem+json" } });
        return Response.json({ id: "s1", state: "stopped" });
      }
      return request.method === "GET" ? Response.json({ id: "s1", state }) : new Response(null, { status: 204 });
    });
  });
  afterEach(() => vi.unstubAllGlobals());

  it("ends a running sandbox, one that is being created, and one that was paused when the user confirmed", async () => {
    for (state of ["running", "creating", "pausing", "paused"]) expect(await endSandbox("s1", state)).toBe(true);
    expect(sent).toEqual(["GET", "POST", "GET", "DELETE", "GET", "DELETE", "GET", "DELETE"]);
  });

  it("does not remove a sandbox that ended between the check and the request", async () => {
    state = "running";
    refusal = "sandbox_not_running";
    stateAtEnd = "stopped";
    expect(await endSandbox("s1", "running")).toBe(false);
    expect(sent).toEqual(["GET", "POST", "GET"]);
  });

  it.each([
    ["sandbox_not_running", "pausing"],
    ["scope_too_small", "running"],
  ])("reports an error if the sandbox has not ended: %s, %s", async (code, then) => {
    state = "running";
    refusal = code;
    stateAtEnd = then;
    await expect(endSandbox("s1", "running")).rejects.toThrow("no");
    expect(sent).not.toContain("DELETE");
  });

  it("does not remove a sandbox that ended by itself", async () => {
    for (state of ["stopping", "stopped"]) expect(await endSandbox("s1", "running")).toBe(false);
    expect(sent).toEqual(["GET", "GET"]);
  });

  it("does not remove a sandbox that was paused since", async () => {
    for (state of ["pausing", "paused"]) await expect(endSandbox("s1", "running")).rejects.toThrow("The sandbox has been paused since.");
    expect(sent).toEqual(["GET", "GET"]);
  });
});
