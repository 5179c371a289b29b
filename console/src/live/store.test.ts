import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Approval, FleetRow, MetricRow } from "../api/console";
import { fleetRow } from "../api/row.fixture";
import { Approvals } from "./approvals";
import { Feed } from "./feed";
import { Fleet } from "./fleet";
import { Live } from "./live";
import { Metrics, maxSamples } from "./metrics";
import type { Source } from "./stream";

const row = (i: number, more: Partial<FleetRow> = {}) => fleetRow(`sandbox${i}`, { name: `name ${i}`, owner: "", ...more });
const thousand = Array.from({ length: 1_000 }, (_, i) => row(i));
const copy = (rows: FleetRow[]): FleetRow[] => JSON.parse(JSON.stringify(rows)) as FleetRow[];
const sample = (id: string, cpu: number): MetricRow => ({ id, cpu, memory: 1, memory_limit: 2, egress: 3, denied: 0 });

describe("Fleet", () => {
  it("keeps the same object for an unchanged row", () => {
    const fleet = new Fleet();
    expect(fleet.apply({ full: true, sandboxes: copy(thousand) })).toBe(true);
    const before = fleet.view;
    expect(before.ready).toBe(true);
    expect(fleet.apply({ full: true, sandboxes: copy(thousand) })).toBe(false);
    expect(fleet.view).toBe(before);
    expect(fleet.apply({ full: false, sandboxes: [row(7, { state: "paused" })], removed: ["sandbox9"] })).toBe(true);
    expect(fleet.view.rows).toHaveLength(999);
    expect(fleet.view.rows.filter((row) => !before.rows.includes(row)).map((row) => row.id)).toEqual(["sandbox7"]);
  });

  it("is not ready before all rows were received", () => {
    const fleet = new Fleet();
    fleet.apply({ full: false, sandboxes: [row(1)], removed: [] });
    expect(fleet.view.ready).toBe(false);
    fleet.apply({ full: true, sandboxes: null });
    expect(fleet.view).toEqual({ rows: [], ready: true });
  });

  it("applies a change of a thousand rows quickly", () => {
    const fleet = new Fleet();
    fleet.apply({ full: true, sandboxes: copy(thousand) });
    let best = Infinity; // The best of several runs: in the others the process may have had to wait.
    for (let i = 0; i < 20; i++) {
      const began = performance.now();
      fleet.apply({ full: true, sandboxes: copy(thousand).map((row) => ({ ...row, denied: i })) });
      best = Math.min(best, performance.now() - began);
    }
    expect(best).toBeLessThan(2_500);
  });
});

describe("Metrics", () => {
  let frames: FrameRequestCallback[];
  const draw = () => {
    const now = frames;
    frames = [];
    for (const frame of now) frame(0);
  };
  beforeEach(() => {
    frames = [];
    vi.stubGlobal("requestAnimationFrame", (frame: FrameRequestCallback) => frames.push(frame));
  });
  afterEach(() => vi.unstubAllGlobals());

  it("keeps the last minute, the oldest first", () => {
    const metrics = new Metrics();
    for (let i = 0; i < maxSamples + 5; i++) metrics.apply([sample("a", i)]);
    const points = metrics.points("a", "cpu");
    expect([points.length, points[0], points.at(-1)]).toEqual([maxSamples, 5, maxSamples + 4]);
    expect(metrics.points("missing", "cpu")).toEqual([]);
  });

  it("has a gap for the time without measurements", () => {
    const metrics = new Metrics();
    const at = (second: number, cpu: number) => metrics.apply([sample("a", cpu)], second * 1000);
    at(1, 1);
    at(2.9, 2); // late, and not a gap
    at(8, 3);
    expect(metrics.points("a", "cpu")).toEqual([1, 2, Number.NaN, Number.NaN, Number.NaN, Number.NaN, 3]);
    at(10_000, 4);
    expect(metrics.points("a", "cpu").filter((n) => !Number.isNaN(n))).toEqual([4]);
    expect(metrics.latest("a")?.cpu).toBe(4);
  });

  it("notifies only subscribers of a sandbox, once per frame", () => {
    const metrics = new Metrics();
    const notified = vi.fn();
    const stop = metrics.subscribe("sandbox3", notified);
    for (let i = 0; i < 5; i++) metrics.apply(thousand.map((row) => sample(row.id, i)));
    expect([frames.length, notified.mock.calls.length]).toEqual([1, 0]);
    draw();
    expect(notified).toHaveBeenCalledTimes(1);
    stop();
    metrics.apply([sample("sandbox3", 9)]);
    draw();
    expect([frames.length, notified.mock.calls.length]).toEqual([0, 1]);
  });

  it("drops old sandboxes, and keeps those that are shown", () => {
    const metrics = new Metrics();
    metrics.subscribe("sandbox0", () => undefined);
    for (const row of thousand) metrics.apply([sample(row.id, 1)]);
    expect(metrics.size).toBeLessThanOrEqual(400);
    expect(metrics.latest("sandbox0")?.cpu).toBe(1);
    expect(metrics.latest("sandbox999")?.cpu).toBe(1);
    expect(metrics.latest("sandbox1")).toBeUndefined();
  });

  it("does not change while frozen, and shows everything afterwards", () => {
    const metrics = new Metrics();
    const notified = vi.fn();
    metrics.subscribe("a", notified);
    metrics.freeze(true);
    metrics.apply([sample("a", 1)]);
    draw();
    expect(notified).not.toHaveBeenCalled();
    metrics.freeze(false);
    draw();
    expect(notified).toHaveBeenCalledTimes(1);
  });
});

function request(id: string, more: Partial<Approval> = {}): Approval {
  return {
    id,
    sandbox: "sandbox1",
    kind: "net.host",
    summary: "asks",
    facts: {},
    rule: "r",
    policy: "p",
    digest: "d",
    state: "pending",
    quorum: 1,
    votes: [],
    created_at: "2026-01-01T00:00:00Z",
    expires_at: "2026-01-01T00:05:00Z",
    ...more,
  };
}

describe("Approvals", () => {
  it("reports each request once as new, and none that existed before", () => {
    const approvals = new Approvals();
    expect(approvals.list([request("a1")])).toEqual([]);
    expect(approvals.event({ type: "pending", approval: request("a2") }).map((a) => a.id)).toEqual(["a2"]);
    expect(approvals.event({ type: "vote", approval: request("a2") })).toEqual([]);
    // After the stream broke, the server sends all requests again, and one is new.
    expect(approvals.list([request("a2"), request("a3")]).map((a) => a.id)).toEqual(["a3"]);
    expect(approvals.view.pending.map((a) => a.id)).toEqual(["a2", "a3"]);
  });

  it("moves decided requests to the recent ones", () => {
    const approvals = new Approvals();
    approvals.list([request("late", { expires_at: "2026-01-01T01:00:00Z" }), request("soon")]);
    expect(approvals.view.pending.map((a) => a.id)).toEqual(["soon", "late"]);
    approvals.event({ type: "approved", approval: request("soon", { state: "approved" }) });
    approvals.event({ type: "spent", approval: request("soon", { state: "spent" }) });
    expect(approvals.view.pending.map((a) => a.id)).toEqual(["late"]);
    expect(approvals.view.recent.map((a) => a.state)).toEqual(["spent"]);
  });
});

describe("Feed", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it("shows the newest of many lines at an interval, each once", () => {
    const feed = new Feed<number>(100, (n) => n);
    const notified = vi.fn();
    feed.subscribe(notified);
    for (let i = 0; i < 1_000; i++) {
      feed.push(i);
      feed.push(i);
    }
    vi.advanceTimersByTime(200);
    expect(notified).toHaveBeenCalledTimes(1);
    expect([feed.view.items.length, feed.view.items[0], feed.view.items.at(-1)]).toEqual([100, 900, 999]);
  });

  it("does not change while paused, and counts the lines that arrive", () => {
    const feed = new Feed<number>(10, (n) => n);
    feed.subscribe(() => undefined);
    feed.push(1);
    vi.advanceTimersByTime(200);
    feed.setPaused(true);
    feed.push(2);
    feed.push(3);
    vi.advanceTimersByTime(200);
    expect([feed.view.items, feed.view.held]).toEqual([[1], 2]);
    feed.setPaused(false);
    expect([feed.view.items, feed.view.held]).toEqual([[1, 2, 3], 0]);
  });

  it("reports a loss", () => {
    const feed = new Feed<number>(10, (n) => n);
    feed.lost("12 entries");
    expect(feed.view.gap).toBe("12 entries");
  });
});

describe("Live", () => {
  class FakeSource implements Source {
    listeners = new Map<string, (event: MessageEvent<string>) => void>();
    addEventListener(type: string, listener: (event: MessageEvent<string>) => void) {
      this.listeners.set(type, listener);
    }
    close() {}
    emit(type: string, data: unknown) {
      this.listeners.get(type)?.(new MessageEvent(type, { data: JSON.stringify(data) }));
    }
  }
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it("does not update the fleet while paused, and never delays a request", () => {
    const source = new FakeSource();
    const live = new Live({ open: () => source, put: async () => 200, probe: async () => "ok", random: () => 0.5 });
    live.start();
    source.emit("hello", { stream: "s", server_started: "1", version: "1", resumed: false });
    source.emit("fleet", { full: true, sandboxes: [row(1)], removed: [] });
    source.emit("approvals", { approvals: [] });
    live.setPaused(true);
    const onRequest = vi.fn();
    live.onRequest.on(onRequest);
    source.emit("fleet", { full: false, sandboxes: [row(2)], removed: [] });
    source.emit("approval", { type: "pending", approval: request("a1") });
    expect(live.fleetView.rows).toHaveLength(1);
    expect(onRequest).toHaveBeenCalledTimes(1);
    expect(live.approvals.view.pending).toHaveLength(1);
    live.setPaused(false);
    expect(live.fleetView.rows).toHaveLength(2);
    live.stop();
  });

  it("keeps a topic as long as one subscriber is left", async () => {
    const puts: string[][] = [];
    const source = new FakeSource();
    const live = new Live({
      open: () => source,
      put: async (_stream, subscription) => (puts.push([...subscription.topics, ...subscription.watch]), 200),
      probe: async () => "ok",
      random: () => 0.5,
    });
    live.start();
    source.emit("hello", { stream: "s", server_started: "1", version: "1", resumed: false });
    const first = live.topic("fleet");
    const second = live.topic("fleet");
    const watch = live.watch(["a", "b"]);
    await vi.advanceTimersByTimeAsync(500);
    // The page is not visible, so its metrics are not requested until it is.
    live.setHidden(true);
    await vi.advanceTimersByTimeAsync(500);
    live.setHidden(false);
    await vi.advanceTimersByTimeAsync(500);
    first();
    watch();
    await vi.advanceTimersByTimeAsync(500);
    second();
    await vi.advanceTimersByTimeAsync(500);
    expect(puts).toEqual([["fleet", "a", "b"], ["fleet"], ["fleet", "a", "b"], ["fleet"], []]);
    live.stop();
  });

  it("reports a reconnect, and whether the server is the same", () => {
    const source = new FakeSource();
    const live = new Live({ open: () => source, put: async () => 200, probe: async () => "ok", random: () => 0.5 });
    const back = vi.fn();
    live.onReturn.on(back);
    live.start();
    for (const started of ["1", "1", "2"]) source.emit("hello", { stream: "s", server_started: started, version: "1", resumed: false });
    expect(back.mock.calls).toEqual([[false], [true]]);
    live.stop();
  });
});
