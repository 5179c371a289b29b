import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { eventTimeout } from "../app/timeout.fixture";
import type { Entry } from "./entry";
import { useOlder } from "./read";

const all: Entry[] = [];
const entry = (seq: number): Entry => ({ seq, time: "2030-01-01T00:00:00Z", prev: "", kind: "action" });

beforeEach(() => {
  all.length = 0;
  for (let seq = 0; seq < 500; seq++) all.push(entry(seq));
  vi.stubGlobal("fetch", async (url: string) => {
    const query = new URL(url, "http://x").searchParams;
    const before = Number(query.get("before") ?? all.length);
    return Response.json({ entries: all.slice(Math.max(0, before - Number(query.get("limit"))), before) });
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("adds entries written before the stream delivered them, and keeps those already read", async () => {
  const { result } = renderHook(() => useOlder({}, {}));
  await vi.waitFor(() => expect(result.current.before).toBe(300), eventTimeout);
  act(() => result.current.more());
  await vi.waitFor(() => expect(result.current.before).toBe(100), eventTimeout);
  all.push(entry(500), entry(501));
  act(() => result.current.catchUp());
  await vi.waitFor(() => expect(result.current.entries[0]?.seq).toBe(501), eventTimeout);
  expect(result.current.entries).toHaveLength(402);
  expect(result.current.before).toBe(100);
});
