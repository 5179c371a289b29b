import { queryOptions, useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext } from "react";
import { api, base, call, type Schemas, unwrap } from "../api/client";
import { asProblem } from "../api/problem";

export type Sandbox = Schemas["Sandbox"];

/** The sandbox of this page. */
export const SandboxContext = createContext<Sandbox | undefined>(undefined);

export function useSandbox(): Sandbox {
  const sandbox = useContext(SandboxContext);
  if (!sandbox) throw new Error("This page belongs to no sandbox.");
  return sandbox;
}

export const sandboxQuery = (ref: string) =>
  queryOptions({
    queryKey: ["sandbox", ref],
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{id}", { params: { path: { id: ref } } })),
    refetchInterval: 5000,
  });

export const snapshotsQuery = queryOptions({
  queryKey: ["snapshots", "all"],
  queryFn: async () => {
    const all: Schemas["Snapshot"][] = [];
    let cursor: string | undefined;
    // The number of pages is limited. The page Snapshots lists all.
    for (let page = 0; page < 20; page++) {
      const list = await unwrap(api.GET("/v1/snapshots", { params: { query: { limit: 100, ...(cursor ? { cursor } : {}) } } }));
      all.push(...(list.snapshots ?? []));
      cursor = list.next_cursor;
      if (!cursor) break;
    }
    return all;
  },
});

/** Reads a list again after an action that changes it. */
export function useRefresh() {
  const client = useQueryClient();
  const sandbox = useContext(SandboxContext);
  return async (...keys: string[]) => {
    await Promise.all([
      client.invalidateQueries({ queryKey: ["sandbox"] }),
      ...keys.map((key) => client.invalidateQueries({ queryKey: sandbox ? [key, sandbox.id] : [key] })),
      ...(keys.includes("snapshots") ? [client.invalidateQueries({ queryKey: ["snapshots"] })] : []),
    ]);
  };
}

/** Reads data of this sandbox from the console's own paths. */
export function useInside<T>(what: string, options: { every?: number; enabled?: boolean } = {}) {
  const sandbox = useSandbox();
  return useQuery({
    queryKey: [what, sandbox.id],
    queryFn: ({ signal }) => call<T>("GET", inside(sandbox.id, what), undefined, signal),
    enabled: (options.enabled ?? true) && sandbox.state === "running",
    ...(options.every ? { refetchInterval: options.every } : {}),
    retry: (count, thrown) => count < 2 && asProblem(thrown).status >= 500,
  });
}

/** The console's own path of a resource inside a sandbox. */
export function inside(id: string, what: string): string {
  return `/sandboxes/${encodeURIComponent(id)}/${what}`;
}

/** The same as a URL that a browser can open directly. */
export function insideURL(id: string, what: string): string {
  return base + inside(id, what);
}

export function isLive(sandbox: Sandbox): boolean {
  return sandbox.state === "running";
}

export function hasEnded(sandbox: Sandbox): boolean {
  return sandbox.state === "stopped" || sandbox.state === "stopping";
}
