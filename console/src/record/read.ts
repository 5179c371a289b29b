// Reads the audit log from the server.
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { api, call, unwrap } from "../api/client";
import { matchesInBrowser, type RecordSearch, type ServerQuery } from "./filter";
import type { Entry } from "./entry";
import { merge, readPage, type ReadBack } from "./pages";
import type { Proof } from "./proof";
import type { Verification } from "./verdict";

function query(params: Record<string, string | number | boolean | undefined>): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== "") out.set(name, String(value));
  return out.toString();
}

/** readBackwards returns a function that reads pages as the server filters them. */
export function readBackwards(q: ServerQuery): ReadBack {
  return async (before, limit) => {
    const list = await call<{ entries: Entry[] | null }>("GET", `/v1/record?${query({ ...q, newest: true, limit, before: before === 0 ? undefined : before })}`);
    return list.entries ?? [];
  };
}

const pageSize = 100;

export interface Older {
  entries: readonly Entry[];
  /** Continue before this one; null at the beginning of the audit log. */
  before: number | null;
  busy: boolean;
  error: unknown;
  more: () => void;
  /** Reads the newest entries again if the stream lost some. */
  reload: () => void;
  /** Adds the newest entries: the stream may have begun after the list was read. */
  catchUp: () => void;
}

/** A filter that the browser applies, with a key that is equal for equal filters. */
export interface BrowserFilter {
  key: string;
  matches: (e: Entry) => boolean;
}

/**
 * useOlder returns entries that were written before the page was opened, newest first. Without a
 * filter, the browser applies its part of the search.
 */
export function useOlder(search: RecordSearch, q: ServerQuery, filter?: BrowserFilter): Older {
  const key = JSON.stringify([search, q, filter?.key]);
  const matches = filter?.matches ?? ((e: Entry) => matchesInBrowser(e, search));
  const [state, setState] = useState<{ key: string; entries: readonly Entry[]; before: number | null | undefined; error: unknown }>({ key, entries: [], before: undefined, error: undefined });
  const [busy, setBusy] = useState(true);
  const latest = useRef(0);

  const load = useCallback(
    async (before: number | undefined) => {
      const generation = ++latest.current;
      setBusy(true);
      try {
        const page = await readPage(readBackwards(q), matches, before, pageSize);
        if (generation !== latest.current) return;
        setState((old) => ({ key, entries: merge(before === undefined ? [] : old.entries, page.entries), before: page.before, error: undefined }));
      } catch (error) {
        if (generation === latest.current) setState((old) => ({ ...old, key, entries: before === undefined ? [] : old.entries, error }));
      } finally {
        if (generation === latest.current) setBusy(false);
      }
    },
    // The key identifies the whole query.
    [key],
  );
  useEffect(() => void load(undefined), [load]);
  const catchUp = useCallback(async () => {
    const generation = latest.current;
    try {
      const page = await readPage(readBackwards(q), matches, undefined, pageSize);
      // A page that is loading, or that was loaded since, includes them too.
      if (generation === latest.current) setState((old) => (old.key === key && old.before !== undefined ? { ...old, entries: merge(old.entries, page.entries) } : old));
    } catch {
      // The stream reports its own errors; these entries are only an addition.
    }
  }, [key]);

  const current = state.key === key;
  return {
    entries: current ? state.entries : [],
    before: current && state.before !== undefined ? state.before : null,
    busy: busy || !current,
    error: current ? state.error : undefined,
    reload: () => void load(undefined),
    catchUp: useCallback(() => void catchUp(), [catchUp]),
    more: () => void load(current && state.before !== null ? state.before : undefined),
  };
}

/** useEntry returns one entry, also of a sandbox that has ended. */
export function useEntry(seq: number) {
  return useQuery({
    queryKey: ["record", "entry", seq],
    queryFn: async (): Promise<Entry | null> => {
      const list = await call<{ entries: Entry[] | null }>("GET", `/v1/record?${query({ after: seq - 1, limit: 1 })}`);
      const found = list.entries?.[0];
      return found?.seq === seq ? found : null;
    },
    staleTime: 0,
  });
}

export function useProof(seq: number, enabled: boolean) {
  return useQuery({
    queryKey: ["record", "proof", seq],
    queryFn: (): Promise<Proof> => unwrap(api.GET("/v1/record/{seq}/proof", { params: { path: { seq } } })),
    enabled: enabled,
    retry: false,
    staleTime: 0,
  });
}

export function useTreeHead() {
  return useQuery({ queryKey: ["record", "checkpoint"], queryFn: () => unwrap(api.GET("/v1/record/checkpoint")), refetchInterval: 60_000 });
}

export function useRecordKey(enabled: boolean) {
  return useQuery({ queryKey: ["record", "key"], queryFn: () => unwrap(api.GET("/v1/record/key")), enabled: enabled, staleTime: Number.POSITIVE_INFINITY, retry: false });
}

/**
 * verify makes the server read the whole log, and compare it with earlier signed tree heads if any
 * are given.
 */
export async function verify(against: string[]): Promise<Verification> {
  return unwrap(api.POST("/v1/record/verify", { body: against.length > 0 ? { against } : {} })) as Promise<Verification>;
}

/** exportURL returns the URL of a download; the server applies only part of the filter. */
export function exportURL(q: ServerQuery): string {
  const text = query({ ...q });
  return `/console/api/v1/record/export${text ? `?${text}` : ""}`;
}

/** notesOf finds one or more signed notes in pasted text. */
export function notesOf(pasted: string): string[] {
  const notes: string[] = [];
  let lines: string[] = [];
  const text = pasted.replaceAll("\r\n", "\n").trim();
  if (text.startsWith("{")) {
    for (const line of text.split("\n").filter((l) => l.trim() !== "")) {
      const note = (JSON.parse(line) as { note?: unknown }).note;
      if (typeof note === "string") notes.push(note);
    }
    return notes;
  }
  for (const line of text.split("\n")) {
    // A note ends with its signatures. Text without a signature after it begins the next note.
    const signature = line.startsWith("— ");
    if (!signature && lines.at(-1)?.startsWith("— ")) {
      notes.push(`${lines.join("\n")}\n`);
      lines = [];
    }
    if (lines.length > 0 || line.trim() !== "") lines.push(line);
  }
  if (lines.length > 0) notes.push(`${lines.join("\n")}\n`);
  return notes;
}
