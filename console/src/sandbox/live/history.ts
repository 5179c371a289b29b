import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { api, call, unwrap } from "../../api/client";
import type { Entry, FlowRecord } from "../../api/console";
import { useEntries, useFlows, useLiveState } from "../../live";

/** The number of entries and requests that one page keeps. */
const limit = 2000;

/**
 * Reloads a list when events may have been missed: between the first reading and the start of the
 * stream, after a gap, or after a lost connection.
 */
function useReloadOfMissed(key: string, id: string, gap: string | null) {
  const client = useQueryClient();
  const state = useLiveState();
  useEffect(() => {
    const timer = setTimeout(() => void client.invalidateQueries({ queryKey: [key, id] }), 1500);
    return () => clearTimeout(timer);
  }, [client, key, id, gap, state]);
}

/** The newest entries of a sandbox, with live ones added. */
export function useEntryLog(id: string) {
  const live = useEntries(id, { limit });
  useReloadOfMissed("entries", id, live.gap);
  const past = useQuery({
    queryKey: ["entries", id],
    queryFn: async () => {
      const list = await unwrap(api.GET("/v1/record", { params: { query: { sandbox: id, newest: true, limit: 1000 } } }));
      return (list as { entries?: Entry[] }).entries ?? [];
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  const entries = useMemo(() => {
    const all = new Map<number, Entry>();
    const before = live.paused ? (past.data ?? []).filter((one) => live.entries.length === 0 || one.seq <= (live.entries.at(-1)?.seq ?? 0)) : (past.data ?? []);
    for (const one of before) all.set(one.seq, one);
    for (const one of live.entries) all.set(one.seq, one);
    return [...all.values()].sort((a, b) => a.seq - b.seq).slice(-limit);
  }, [past.data, live.entries, live.paused]);
  return { ...live, entries, error: past.error, loading: past.isPending, retry: () => void past.refetch() };
}

interface FlowList {
  records: FlowRecord[];
  asked?: string[];
}

/** The requests of a sandbox, with live ones added. */
export function useTraffic(id: string) {
  const live = useFlows(id, { limit });
  useReloadOfMissed("flows", id, live.gap);
  const past = useQuery({
    queryKey: ["flows", id],
    queryFn: ({ signal }) => call<FlowList>("GET", `/v1/sandboxes/${encodeURIComponent(id)}/network/log`, undefined, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const flows = useMemo(() => {
    const all = new Map<number, FlowRecord>();
    for (const one of past.data?.records ?? []) all.set(one.seq, one);
    for (const one of live.flows) all.set(one.seq, one);
    return [...all.values()].sort((a, b) => a.seq - b.seq).slice(-limit);
  }, [past.data, live.flows]);
  return { ...live, flows, asked: past.data?.asked ?? [], error: past.error, loading: past.isPending, retry: () => void past.refetch() };
}
