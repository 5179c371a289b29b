import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { read } from "../api/client";
import type { Session } from "../api/console";
import { ApiProblem } from "../api/problem";
import { sessionQuery } from "../api/session";
import { live } from "../live/live";
import { beginQueries, signOutReason, queries } from "./query";

const session = (expires: number): Session => ({
  id: "s1",
  name: "local",
  scope: "admin",
  created_at: "2026-01-01T00:00:00Z",
  expires_at: new Date(Date.now() + expires).toISOString(),
  version: "1",
  server_started: "2026-01-01T00:00:00Z",
  domain: "",
  engine: { name: "gvisor", boundary: "userspace-kernel" },
});
const answer = (status: number) => read(new Response("{}", { status, headers: { "Content-Type": "application/json" } })).catch((e: unknown) => e);

beginQueries();

describe("the end of a session", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    vi.spyOn(live, "stop");
    signOutReason.text = "";
  });
  afterEach(() => vi.useRealTimers());

  it("removes all data, and shows that the session has ended", async () => {
    queries.setQueryData(sessionQuery.queryKey, session(3_600_000));
    queries.setQueryData(["keys"], ["a key"]);
    expect(await answer(401)).toBeInstanceOf(ApiProblem);
    vi.advanceTimersByTime(10);
    expect(queries.getQueryData(sessionQuery.queryKey)).toBeNull();
    expect(queries.getQueryData(["keys"])).toBeUndefined();
    expect(live.stop).toHaveBeenCalled();
    expect(signOutReason.text).toBe("Your session has ended.");
  });

  it("shows that the session has expired", async () => {
    queries.setQueryData(sessionQuery.queryKey, session(-1));
    await answer(401);
    expect(signOutReason.text).toBe("Your session has expired.");
  });

  it("is caused by no status other than 401", async () => {
    queries.setQueryData(sessionQuery.queryKey, session(3_600_000));
    for (const status of [200, 403, 404, 500]) await answer(status);
    expect(queries.getQueryData(sessionQuery.queryKey)).not.toBeNull();
    expect(live.stop).not.toHaveBeenCalled();
  });

  it("is not shown to a user who was not signed in", async () => {
    queries.setQueryData(sessionQuery.queryKey, null);
    await answer(401);
    expect(signOutReason.text).toBe("");
  });
});

describe("a failed query", () => {
  it("is repeated after an error of the server, and not after a refusal", () => {
    const retry = queries.getDefaultOptions().queries?.retry as (count: number, error: Error) => boolean;
    expect(retry(0, new ApiProblem(404, "not_found", "no"))).toBe(false);
    expect(retry(0, new ApiProblem(503, "unavailable", "no"))).toBe(true);
    expect(retry(0, new TypeError("Failed to fetch"))).toBe(true);
    expect(retry(2, new TypeError("Failed to fetch"))).toBe(false);
  });
});
