import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Source, Stream, type Subscription, type StreamEnvironment } from "./stream";

class FakeSource implements Source {
  closed = false;
  private readonly listeners = new Map<string, ((event: MessageEvent<string>) => void)[]>();
  readonly url: URL;
  constructor(url: string) {
    this.url = new URL(url, "http://x");
  }
  addEventListener(type: string, listener: (event: MessageEvent<string>) => void) {
    this.listeners.set(type, [...(this.listeners.get(type) ?? []), listener]);
  }
  close() {
    this.closed = true;
  }
  emit(type: string, data: unknown, id = "") {
    this.raw(type, JSON.stringify(data), id);
  }
  raw(type: string, data: string, id = "") {
    for (const listener of this.listeners.get(type) ?? []) listener(new MessageEvent(type, { data, lastEventId: id }));
  }
  hello(stream: string, id = "") {
    this.emit("hello", { stream, server_started: "t", version: "1", resumed: false }, id);
  }
  fail() {
    this.raw("error", "");
  }
  parameter(name: string): string | null {
    return this.url.searchParams.get(name);
  }
}

const sources: FakeSource[] = [];
const puts: { stream: string; subscription: Subscription }[] = [];
let updateStatus: number;
let probeResult: "ok" | "signed-out" | "unreachable";
const environment: StreamEnvironment = {
  open: (url) => {
    const source = new FakeSource(url);
    sources.push(source);
    return source;
  },
  put: (stream, subscription) => {
    puts.push({ stream, subscription });
    return Promise.resolve(updateStatus);
  },
  probe: () => Promise.resolve(probeResult),
  random: () => 0.5,
};
const last = (): FakeSource => {
  const source = sources.at(-1);
  if (!source) throw new Error("no stream was opened");
  return source;
};

describe("Stream", () => {
  const received: [string, unknown][] = [];
  const states: string[] = [];
  let stream: Stream;

  beforeEach(() => {
    vi.useFakeTimers();
    sources.length = puts.length = received.length = states.length = 0;
    [updateStatus, probeResult] = [200, "ok"];
    stream = new Stream(
      environment,
      (name, data) => received.push([name, data]),
      () => states.push(stream.state),
    );
    stream.updateSubscription(["approvals"], []);
    stream.start();
  });
  afterEach(() => {
    stream.stop();
    vi.useRealTimers();
  });

  it("is live after the server's hello, with one connection", async () => {
    expect(stream.state).toBe("reconnecting");
    expect(last().parameter("topics")).toBe("approvals");
    last().hello("s1");
    expect(stream.state).toBe("live");
    for (let i = 0; i < 10; i++) {
      await vi.advanceTimersByTimeAsync(15_000);
      last().emit("beat", {});
    }
    expect([sources.length, puts.length]).toEqual([1, 0]);
    expect(received.map(([name]) => name)).toEqual(["hello"]);
  });

  it("passes on received events", () => {
    last().hello("s1");
    last().emit("approvals", { approvals: [] });
    expect(received.map(([name]) => name)).toEqual(["hello", "approvals"]);
  });

  it("updates the server once when several topics change, and not without a change", async () => {
    last().hello("s1");
    stream.updateSubscription(["approvals", "fleet"], []);
    stream.updateSubscription(["fleet", "approvals"], ["b", "a"]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(puts).toEqual([{ stream: "s1", subscription: { topics: ["approvals", "fleet"], watch: ["a", "b"] } }]);
    stream.updateSubscription(["approvals", "fleet"], ["a", "b"]);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(puts).toHaveLength(1);
  });

  it("sends changes that were made while it was opening after the hello", async () => {
    stream.updateSubscription(["fleet"], []);
    last().hello("s1");
    await vi.advanceTimersByTimeAsync(1_000);
    expect(puts.map((p) => p.subscription.topics)).toEqual([["fleet"]]);
  });

  it("watches no more sandboxes than the server accepts", async () => {
    last().hello("s1");
    stream.updateSubscription(["fleet"], Array.from({ length: 900 }, (_, i) => `sandbox${i}`));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(puts[0]?.subscription.watch).toHaveLength(200);
  });

  it("reconnects with the current topics, after longer waits each time", async () => {
    last().hello("s1");
    stream.updateSubscription(["fleet", "record:b1"], ["b1"]);
    const waits: number[] = [];
    for (let i = 0; i < 7; i++) {
      const before = sources.length;
      last().fail();
      let waited = 0;
      while (sources.length === before) {
        await vi.advanceTimersByTimeAsync(50);
        waited += 50;
      }
      waits.push(waited);
    }
    expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    expect([last().parameter("topics"), last().parameter("watch")]).toEqual(["fleet,record:b1", "b1"]);
    expect(sources.slice(0, -1).every((s) => s.closed)).toBe(true);
    expect(stream.state).toBe("offline");
    last().hello("s2");
    expect(stream.state).toBe("live");
    expect(states).toEqual(["live", "reconnecting", "offline", "live"]);
  });

  it("starts with short waits again after it was live", async () => {
    for (let i = 0; i < 4; i++) {
      last().fail();
      await vi.advanceTimersByTimeAsync(20_000);
    }
    last().hello("s2");
    last().fail();
    const before = sources.length;
    await vi.advanceTimersByTimeAsync(600);
    expect(sources).toHaveLength(before + 1);
  });

  it("continues after the last received entry", async () => {
    stream.updateSubscription(["record"], []);
    last().hello("s1");
    last().emit("entry", { seq: 41 }, "41");
    last().emit("entry", { seq: 42 }, "42");
    last().fail();
    await vi.advanceTimersByTimeAsync(600);
    expect(last().parameter("after")).toBe("42");
  });

  it.each([["record"], ["record:b1"], ["network:b1"]])("misses no event of %s before the first received one", async (topic) => {
    stream.updateSubscription([topic], []);
    last().hello("s1", "40");
    last().fail();
    await vi.advanceTimersByTimeAsync(600);
    expect(last().parameter("after")).toBe("40");
    last().hello("s2", "40");
    last().emit("flow", { seq: 44 }, "44");
    // An event without a number has the last number that the server sent.
    last().emit("fleet", { full: true, sandboxes: [] }, "47");
    last().fail();
    await vi.advanceTimersByTimeAsync(600);
    expect(last().parameter("after")).toBe("47");
  });

  it("requests no old entries if only the fleet is shown", async () => {
    last().hello("s1", "40");
    last().fail();
    await vi.advanceTimersByTimeAsync(600);
    expect(last().parameter("after")).toBeNull();
  });

  it("requests no old entries once no page reads the audit log", async () => {
    stream.updateSubscription(["record"], []);
    last().hello("s1");
    last().emit("entry", { seq: 42 }, "42");
    stream.updateSubscription(["fleet"], []);
    stream.updateSubscription(["fleet", "record"], []);
    last().fail();
    await vi.advanceTimersByTimeAsync(600);
    expect(last().parameter("after")).toBeNull();
  });

  it("opens another stream if the server no longer knows this one", async () => {
    last().hello("s1");
    updateStatus = 404;
    stream.updateSubscription(["fleet"], []);
    await vi.advanceTimersByTimeAsync(200);
    expect(last().closed).toBe(true);
    await vi.advanceTimersByTimeAsync(600);
    expect(sources).toHaveLength(2);
    expect(last().parameter("topics")).toBe("fleet");
  });

  it("repeats a refused update later", async () => {
    last().hello("s1");
    updateStatus = 503;
    stream.updateSubscription(["fleet"], []);
    await vi.advanceTimersByTimeAsync(1_000);
    updateStatus = 200;
    await vi.advanceTimersByTimeAsync(3_000);
    await vi.advanceTimersByTimeAsync(30_000);
    expect(puts).toHaveLength(2);
  });

  it("stops when the session has ended", async () => {
    last().hello("s1");
    probeResult = "signed-out";
    last().fail();
    await vi.advanceTimersByTimeAsync(120_000);
    expect(sources).toHaveLength(1);
    expect(stream.state).toBe("offline");
  });

  it("opens no stream while the server is unreachable, and retries at once on request", async () => {
    last().hello("s1");
    probeResult = "unreachable";
    last().fail();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(sources).toHaveLength(1);
    stream.reconnectNow();
    expect(sources).toHaveLength(2);
    last().hello("s2");
    stream.reconnectNow();
    expect(sources).toHaveLength(2);
  });

  it("is not live on a silent stream, and opens another", async () => {
    stream.updateSubscription(["record"], []);
    last().hello("s1", "40");
    await vi.advanceTimersByTimeAsync(20_000);
    last().emit("beat", {}, "41");
    await vi.advanceTimersByTimeAsync(34_000);
    expect([stream.state, last().closed]).toEqual(["live", false]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([stream.state, last().closed]).toEqual(["reconnecting", true]);
    await vi.advanceTimersByTimeAsync(600);
    expect(sources.map((s) => s.closed)).toEqual([true, false]);
    expect(last().parameter("after")).toBe("41");
    last().hello("s2", "41");
    expect(stream.state).toBe("live");
  });

  it("gives up a stream without a hello", async () => {
    await vi.advanceTimersByTimeAsync(36_000);
    expect(sources.map((s) => s.closed)).toEqual([true, false]);
  });

  it("does not trust a stream that was silent while the machine slept", () => {
    stream.updateSubscription(["record"], []);
    last().hello("s1", "40");
    vi.setSystemTime(Date.now() + 34_000); // no timer runs in between
    stream.reconnectNow();
    expect(sources).toHaveLength(1);
    vi.setSystemTime(Date.now() + 2_000);
    stream.reconnectNow();
    expect(sources.map((s) => s.closed)).toEqual([true, false]);
    expect(last().parameter("after")).toBe("40");
  });

  it("treats half an event as a broken stream, and ignores a stream that it has left", async () => {
    last().hello("s1");
    const old = last();
    old.raw("fleet", '{"full":tr');
    expect(old.closed).toBe(true);
    old.emit("fleet", { full: true, sandboxes: [] });
    old.fail();
    expect(received.map(([name]) => name)).toEqual(["hello"]);
    await vi.advanceTimersByTimeAsync(600);
    expect(sources).toHaveLength(2);
  });
});
