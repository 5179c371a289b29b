import type { MetricRow } from "../api/console";

/** The number of samples that are stored: a minute at one per second. */
export const maxSamples = 60;
// After this many seconds without a sample, the line shows a gap. The page was hidden, the sandbox
// out of view, or the server unreachable.
const gapSeconds = 3;
// The rings of this many sandboxes out of view are kept, for scrolling back.
const maxRings = 400;

export type MetricKind = "cpu" | "memory" | "egress";

class Ring {
  readonly cpu = new Float64Array(maxSamples);
  readonly memory = new Float64Array(maxSamples);
  readonly egress = new Float64Array(maxSamples);
  latest: MetricRow | undefined;
  count = 0;
  private next = 0;
  private at = 0;

  push(row: MetricRow, now: number) {
    const missed = Math.min(maxSamples, Math.round((now - this.at) / 1000) - 1);
    if (this.count > 0 && missed >= gapSeconds) for (let i = 0; i < missed; i++) this.add(Number.NaN, Number.NaN, Number.NaN);
    this.add(row.cpu, row.memory, row.egress);
    this.latest = row;
    this.at = now;
  }

  private add(cpu: number, memory: number, egress: number) {
    this.cpu[this.next] = cpu;
    this.memory[this.next] = memory;
    this.egress[this.next] = egress;
    this.next = (this.next + 1) % maxSamples;
    this.count = Math.min(this.count + 1, maxSamples);
  }

  /** The samples of a kind, one for each second, the oldest first; NaN where there is none. */
  read(kind: MetricKind): number[] {
    const from = this[kind];
    const points = new Array<number>(this.count);
    for (let i = 0; i < this.count; i++) points[i] = from[(this.next - this.count + i + maxSamples) % maxSamples] ?? 0;
    return points;
  }
}

/**
 * The last minute of each watched sandbox. Subscribers are notified at most once per animation
 * frame, and only about the sandboxes that they show.
 */
export class Metrics {
  private readonly rings = new Map<string, Ring>();
  private readonly listeners = new Map<string, Set<() => void>>();
  private readonly touched = new Set<string>();
  private frame = 0;
  private frozen = false;

  apply(rows: readonly MetricRow[], now = Date.now()) {
    for (const row of rows) {
      const ring = this.rings.get(row.id) ?? new Ring();
      // The ring that was updated last is at the end, so that the oldest is found first.
      this.rings.delete(row.id);
      this.rings.set(row.id, ring);
      ring.push(row, now);
      if (this.listeners.has(row.id)) this.touched.add(row.id);
    }
    if (this.rings.size > maxRings) this.forget();
    this.plan();
  }

  /** Freezes what is shown; samples are stored nevertheless. */
  freeze(on: boolean) {
    this.frozen = on;
    if (!on) this.plan();
  }

  latest(id: string): MetricRow | undefined {
    return this.rings.get(id)?.latest;
  }

  points(id: string, kind: MetricKind): number[] {
    return this.rings.get(id)?.read(kind) ?? [];
  }

  subscribe(id: string, listener: () => void): () => void {
    const set = this.listeners.get(id) ?? new Set();
    this.listeners.set(id, set);
    set.add(listener);
    return () => {
      set.delete(listener);
      if (set.size === 0 && this.listeners.get(id) === set) this.listeners.delete(id);
    };
  }

  /** The number of stored rings, for tests. */
  get size(): number {
    return this.rings.size;
  }

  private plan() {
    if (this.frame !== 0 || this.frozen || this.touched.size === 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.frozen) return;
      const ids = [...this.touched];
      this.touched.clear();
      for (const id of ids) for (const listener of this.listeners.get(id) ?? []) listener();
    });
  }

  private forget() {
    for (const id of this.rings.keys()) {
      if (this.rings.size <= maxRings) return;
      if (!this.listeners.has(id)) this.rings.delete(id);
    }
  }
}
