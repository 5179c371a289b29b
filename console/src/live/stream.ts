/** The part of a browser's EventSource that the stream needs. */
export interface Source {
  addEventListener(type: string, listener: (event: MessageEvent<string>) => void): void;
  close(): void;
}

/** What the stream needs from the browser; tests replace it. */
export interface StreamEnvironment {
  open: (url: string) => Source;
  /** Sends the server a subscription; resolves to the status. */
  put: (stream: string, subscription: Subscription) => Promise<number>;
  /** Finds out why a stream broke: the session ended, or the server is unreachable. */
  probe: () => Promise<"ok" | "signed-out" | "unreachable">;
  random: () => number;
}

export interface Subscription {
  topics: string[];
  watch: string[];
}

export type LiveState = "live" | "reconnecting" | "offline";

export const eventNames = ["hello", "fleet", "metrics", "approvals", "approval", "entry", "flow", "gap", "beat"] as const;
export type EventName = (typeof eventNames)[number];

/** The most sandboxes whose metrics one stream carries. */
export const maxWatched = 200;

const path = "/console/api/events";
const firstDelay = 500;
const maxDelay = 15_000;
const updateDelay = 120;
// The server sends a heartbeat every 15 seconds. A stream that was silent for longer has failed,
// even if the browser does not know: it gets no notice of a pulled cable or of a machine that
// slept. Then the page must not claim to be live.
const silenceLimit = 35_000;
// After this many failed attempts the page shows that it is offline.
const maxFailures = 3;

/**
 * The one event stream of this tab. If it breaks, it opens another with the current topics, and
 * continues after the last entry that it received. The browser's own reconnecting is not used: it
 * would request the first topics, and give up after one refused response.
 */
export class Stream {
  state: LiveState = "reconnecting";

  private readonly environment: StreamEnvironment;
  private readonly receive: (name: EventName, data: unknown) => void;
  private readonly changed: () => void;
  private subscription: Subscription = { topics: [], watch: [] };
  private sent = "";
  private source: Source | undefined;
  private id: string | undefined;
  private lastEvent = 0;
  private failures = 0;
  private last: number | undefined;
  private running = false;
  private watch: ReturnType<typeof setTimeout> | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private sync: ReturnType<typeof setTimeout> | undefined;
  private putting = false;

  constructor(environment: StreamEnvironment, receive: (name: EventName, data: unknown) => void, changed: () => void) {
    this.environment = environment;
    this.receive = receive;
    this.changed = changed;
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.failures = 0;
    this.open();
  }

  stop() {
    this.running = false;
    clearTimeout(this.retry);
    clearTimeout(this.sync);
    this.close();
    this.setState("offline");
  }

  /** Sets the subscription: the topics, and the sandboxes whose metrics are watched. */
  updateSubscription(topics: Iterable<string>, watch: Iterable<string>) {
    this.subscription = { topics: [...topics].sort(), watch: [...watch].slice(0, maxWatched).sort() };
    // If no topic of the audit log is requested, there is no entry to continue after.
    if (!this.follows()) this.last = undefined;
    this.scheduleUpdate(updateDelay);
  }

  /**
   * Tries again at once, unless it is certainly connected: the machine woke, or its network
   * returned.
   */
  reconnectNow() {
    if (!this.running || (this.source && Date.now() - this.lastEvent < silenceLimit)) return;
    clearTimeout(this.retry);
    this.open();
  }

  private open() {
    this.close();
    const query = new URLSearchParams({ topics: this.subscription.topics.join(",") });
    if (this.subscription.watch.length > 0) query.set("watch", this.subscription.watch.join(","));
    if (this.last !== undefined) query.set("after", String(this.last));
    const source = this.environment.open(`${path}?${query.toString()}`);
    this.source = source;
    this.lastEvent = Date.now();
    this.watchForSilence();
    this.sent = JSON.stringify(this.subscription);
    for (const name of eventNames) {
      source.addEventListener(name, (event) => {
        if (this.source === source) this.event(name, event);
      });
    }
    source.addEventListener("error", () => {
      if (this.source === source) this.reconnectLater();
    });
  }

  /** Closes a stream that has been silent for too long. */
  private watchForSilence() {
    const left = this.lastEvent + silenceLimit - Date.now();
    if (left <= 0) this.reconnectLater();
    else this.watch = setTimeout(() => this.watchForSilence(), left);
  }

  private event(name: EventName, event: MessageEvent<string>) {
    this.lastEvent = Date.now();
    let data: unknown;
    try {
      data = JSON.parse(event.data);
    } catch {
      // An incomplete event shows that the stream is broken.
      this.reconnectLater();
      return;
    }
    if (name === "hello") {
      this.id = (data as { stream?: string }).stream;
      this.failures = 0;
      this.setState("live");
      this.scheduleUpdate(0);
    }
    // Every event has the number to continue after, beginning with hello: a stream that breaks
    // before the first entry or flow must not miss it.
    const seq = Number(event.lastEventId);
    if (this.follows() && event.lastEventId !== "" && Number.isSafeInteger(seq)) this.last = Math.max(this.last ?? -1, seq);
    if (name !== "beat") this.receive(name, data);
  }

  private follows(): boolean {
    return this.subscription.topics.some((t) => /^(record$|record:|network:)/.test(t));
  }

  private reconnectLater() {
    this.close();
    if (!this.running) return;
    this.failures++;
    this.setState(this.failures > maxFailures ? "offline" : "reconnecting");
    const wait = Math.min(maxDelay, firstDelay * 2 ** (this.failures - 1)) * (0.75 + this.environment.random() / 2);
    this.retry = setTimeout(() => void this.reconnect(), wait);
  }

  private async reconnect() {
    const cause = await this.environment.probe();
    if (!this.running || this.source) return;
    if (cause === "signed-out") this.stop();
    else if (cause === "unreachable") this.reconnectLater();
    else this.open();
  }

  private scheduleUpdate(wait: number) {
    clearTimeout(this.sync);
    this.sync = setTimeout(() => void this.update(), wait);
  }

  private async update() {
    const [id, wanted] = [this.id, this.subscription];
    if (!id || this.putting) return;
    const text = JSON.stringify(wanted);
    if (text === this.sent) return;
    this.putting = true;
    const status = await this.environment.put(id, wanted).catch(() => 0);
    this.putting = false;
    if (this.id !== id) {
      // A newer stream has been opened, with all of these topics.
      this.scheduleUpdate(0);
    } else if (status >= 200 && status < 300) {
      this.sent = text;
      this.scheduleUpdate(0);
    } else if (status === 404) {
      this.reconnectLater();
    } else {
      this.scheduleUpdate(2_000);
    }
  }

  private close() {
    this.source?.close();
    this.source = undefined;
    this.id = undefined;
    clearTimeout(this.watch);
    clearTimeout(this.retry);
  }

  private setState(state: LiveState) {
    if (this.state === state) return;
    this.state = state;
    this.changed();
  }
}
