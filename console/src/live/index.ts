/** The hooks with which pages read live data, all from the one event stream of this tab. */
import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import type { Entry, FlowRecord } from "../api/console";
import type { ApprovalView } from "./approvals";
import { Feed, type FeedView } from "./feed";
import type { FleetView } from "./fleet";
import { live } from "./live";
import type { MetricKind } from "./metrics";
import type { LiveState } from "./stream";

export { live } from "./live";
export type { LiveState } from "./stream";

/** Subscribes to a topic while the component is mounted. */
export function useTopic(topic: string | null) {
  useEffect(() => (topic === null ? undefined : live.topic(topic)), [topic]);
}

/** The fleet, live. */
export function useFleet(): FleetView {
  useTopic("fleet");
  return useSyncExternalStore(live.onFleet.on, () => live.fleetView);
}

/** Subscribes to the metrics of some sandboxes, at most 200 in the whole tab. */
export function useWatch(ids: readonly string[]) {
  const key = ids.join(",");
  useEffect(() => (key === "" ? undefined : live.watch(key.split(","))), [key]);
}

export interface MetricView {
  /** CPU use of the last minute, where 1 is one core, oldest first. */
  cpu: number[];
  memory: number[];
  /** Bytes per second. */
  egress: number[];
  latest: { cpu: number; memory: number; memory_limit: number; egress: number; denied: number } | undefined;
}

/**
 * The last minute of a watched sandbox (useWatch). The component is drawn again with each sample.
 */
export function useMetrics(id: string): MetricView {
  const latest = useSyncExternalStore(
    useCallback((listener: () => void) => live.metrics.subscribe(id, listener), [id]),
    () => live.metrics.latest(id),
  );
  const read = (kind: MetricKind) => live.metrics.points(id, kind);
  return { cpu: read("cpu"), memory: read("memory"), egress: read("egress"), latest };
}

/** The pending approval requests, and those that were decided while this page is open. */
export function useApprovals(): ApprovalView {
  useTopic("approvals");
  return useSyncExternalStore(live.onApprovals.on, () => live.approvals.view);
}

type FeedState<T> = Omit<FeedView<T>, "items"> & { setPaused: (paused: boolean) => void; items: readonly T[] };

function useFeed<T>(topic: string, limit: number, key: (item: T) => string | number, from: (push: (item: T) => void) => () => void): FeedState<T> {
  // Another topic has another list; the old one is dropped.
  const [feeds] = useState(() => new Map<string, Feed<T>>());
  let feed = feeds.get(topic);
  if (!feed) {
    feeds.clear();
    feed = new Feed<T>(limit, key);
    feeds.set(topic, feed);
  }
  const current = feed;
  useTopic(topic);
  useEffect(() => from((item) => current.push(item)), [current, from]);
  useEffect(
    () =>
      live.onGap.on((gap) => {
        if (gap.topic === topic || gap.topic === "") current.lost(gap.text);
      }),
    [current, topic],
  );
  const view = useSyncExternalStore(current.subscribe, current.read);
  return { ...view, setPaused: current.setPaused };
}

/** New entries of the audit log, oldest first; of one sandbox or of all. */
export function useEntries(sandbox: string | null, { limit = 500 }: { limit?: number } = {}) {
  const from = useCallback(
    (push: (entry: Entry) => void) =>
      live.onEntry.on((entry) => {
        if (sandbox === null || entry.sandbox === sandbox) push(entry);
      }),
    [sandbox],
  );
  const { items, ...rest } = useFeed<Entry>(sandbox === null ? "record" : `record:${sandbox}`, limit, entryKey, from);
  return { entries: items, ...rest };
}

function entryKey(entry: Entry): number {
  return entry.seq;
}

/** New flows of a sandbox, oldest first. */
export function useFlows(sandbox: string, { limit = 500 }: { limit?: number } = {}) {
  const from = useCallback(
    (push: (flow: FlowRecord) => void) =>
      live.onFlow.on((flow) => {
        if (flow.sandbox === sandbox) push(flow);
      }),
    [sandbox],
  );
  const { items, ...rest } = useFeed<FlowRecord>(`network:${sandbox}`, limit, flowKey, from);
  return { flows: items, ...rest };
}

function flowKey(flow: FlowRecord): string {
  return `${flow.seq}/${flow.time}`;
}

/** Whether the shown data is live. */
export function useLiveState(): LiveState {
  return useSyncExternalStore(live.onState.on, () => live.state);
}

/** Returns whether the fleet is paused, and a function that changes it. */
export function useLivePaused(): [boolean, (paused: boolean) => void] {
  const paused = useSyncExternalStore(live.onState.on, () => live.paused);
  return [paused, (on) => live.setPaused(on)];
}
