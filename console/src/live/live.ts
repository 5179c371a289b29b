import { base, call } from "../api/client";
import type { Approval, ApprovalEvent, Entry, FlowRecord, Gap, Hello, MetricRow } from "../api/console";
import { ApiProblem } from "../api/problem";
import { Approvals } from "./approvals";
import { Fleet, type FleetEvent, type FleetView } from "./fleet";
import { Metrics } from "./metrics";
import { type EventName, type LiveState, Stream, type Subscription, type StreamEnvironment } from "./stream";

type Listener<T extends unknown[] = []> = (...args: T) => void;

/** A set of listeners. */
class Emitter<T extends unknown[] = []> {
  private readonly all = new Set<Listener<T>>();

  readonly on = (listener: Listener<T>): (() => void) => {
    this.all.add(listener);
    return () => this.all.delete(listener);
  };

  emit(...args: T) {
    for (const listener of [...this.all]) listener(...args);
  }
}

/** Reference-counted subscriptions. */
class CountedSet {
  private readonly counts = new Map<string, number>();

  add(name: string) {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }

  drop(name: string) {
    const left = (this.counts.get(name) ?? 1) - 1;
    if (left > 0) this.counts.set(name, left);
    else this.counts.delete(name);
  }

  names(): Iterable<string> {
    return this.counts.keys();
  }
}

/** The live data of this tab: the stream, and all that it has received. */
export class Live {
  readonly fleet = new Fleet();
  readonly metrics = new Metrics();
  readonly approvals = new Approvals();
  /** The state of the fleet, which does not change while paused. */
  fleetView: FleetView = this.fleet.view;
  paused = false;
  hello: Hello | undefined;

  readonly onState = new Emitter();
  readonly onFleet = new Emitter();
  readonly onApprovals = new Emitter();
  /** Called with each new approval request. */
  readonly onRequest = new Emitter<[Approval]>();
  readonly onEntry = new Emitter<[Entry]>();
  readonly onFlow = new Emitter<[FlowRecord]>();
  readonly onGap = new Emitter<[Gap]>();
  /** Called when the stream is connected again; the argument is true if the server restarted. */
  readonly onReturn = new Emitter<[boolean]>();

  private readonly stream: Stream;
  private readonly topics = new CountedSet();
  private readonly watched = new CountedSet();
  private hidden = false;

  constructor(environment: StreamEnvironment) {
    this.stream = new Stream(
      environment,
      (name, data) => this.receive(name, data),
      () => this.onState.emit(),
    );
  }

  get state(): LiveState {
    return this.stream.state;
  }

  start() {
    this.stream.start();
  }

  stop() {
    this.stream.stop();
  }

  reconnectNow() {
    this.stream.reconnectNow();
  }

  /** Subscribes to a topic until the returned function is called. */
  topic(name: string): () => void {
    this.topics.add(name);
    this.updateSubscription();
    return () => {
      this.topics.drop(name);
      this.updateSubscription();
    };
  }

  /** Subscribes to the metrics of some sandboxes in the same way. */
  watch(ids: readonly string[]): () => void {
    for (const id of ids) this.watched.add(id);
    this.updateSubscription();
    return () => {
      for (const id of ids) this.watched.drop(id);
      this.updateSubscription();
    };
  }

  /** Pauses the fleet, or continues. Approval requests are never paused. */
  setPaused(paused: boolean) {
    this.paused = paused;
    this.metrics.freeze(paused);
    if (!paused) this.showFleet();
    this.onState.emit();
  }

  /** Sets whether the page is visible: metrics are drawn only then. */
  setHidden(hidden: boolean) {
    if (this.hidden === hidden) return;
    this.hidden = hidden;
    this.updateSubscription();
  }

  private updateSubscription() {
    this.stream.updateSubscription(this.topics.names(), this.hidden ? [] : this.watched.names());
  }

  private showFleet() {
    if (this.paused && this.fleetView.ready) return;
    this.fleetView = this.fleet.view;
    this.onFleet.emit();
  }

  private receive(name: EventName, data: unknown) {
    switch (name) {
      case "hello":
        this.receiveHello(data as Hello);
        break;
      case "fleet":
        if (this.fleet.apply(data as FleetEvent)) this.showFleet();
        break;
      case "metrics":
        this.metrics.apply((data as { rows: MetricRow[] | null }).rows ?? []);
        break;
      case "approvals":
        this.announce(this.approvals.list((data as { approvals: Approval[] | null }).approvals ?? []));
        break;
      case "approval":
        this.announce(this.approvals.event(data as ApprovalEvent));
        break;
      case "entry":
        this.onEntry.emit(data as Entry);
        break;
      case "flow":
        this.onFlow.emit(data as FlowRecord);
        break;
      case "gap":
        this.onGap.emit(data as Gap);
        break;
    }
  }

  private receiveHello(hello: Hello) {
    const before = this.hello;
    this.hello = hello;
    if (before) this.onReturn.emit(before.server_started !== hello.server_started);
  }

  private announce(requests: Approval[]) {
    this.onApprovals.emit();
    for (const approval of requests) this.onRequest.emit(approval);
  }
}

/** The stream of a real browser. */
export const browserEnvironment: StreamEnvironment = {
  open: (url) => new EventSource(url),
  put: async (stream: string, subscription: Subscription) => {
    const response = await fetch(`${base}/events/${encodeURIComponent(stream)}`, {
      method: "PUT",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(subscription),
    });
    return response.status;
  },
  probe: async () => {
    try {
      await call("GET", "/session");
      return "ok";
    } catch (thrown) {
      return thrown instanceof ApiProblem && thrown.status === 401 ? "signed-out" : "unreachable";
    }
  },
  random: Math.random,
};

/** The instance of this tab. */
export const live = new Live(browserEnvironment);
