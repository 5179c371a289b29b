// The requests of the policy page.
import { useQuery } from "@tanstack/react-query";
import { api, call, unwrap } from "../api/client";
import type { Explanation, LintResult } from "./lint";
import type { Schema } from "./schema";

/** A policy that the server offers as a starting point. */
export interface Preset {
  name: string;
  document: string;
}

/** A policy that a sandbox had, from the audit log. */
export interface Version {
  digest: string;
  seq: number;
  at: string;
  actor: string;
  document?: string;
}

/** One step of the explanation: what a layer decided, and by which rule. */
export interface Step {
  layer: string;
  rule?: string;
  effect?: string;
  text: string;
}

const neverStale = { staleTime: Number.POSITIVE_INFINITY };

export function useSchema() {
  return useQuery({ queryKey: ["policy", "schema"], queryFn: () => call<Schema>("GET", "/policy/schema"), ...neverStale });
}

export function usePresets() {
  return useQuery({
    queryKey: ["policy", "presets"],
    queryFn: () => call<Preset[]>("GET", "/policy/presets"),
    ...neverStale,
  });
}

/** useRunning returns the sandboxes whose policy can be changed. */
export function useRunning() {
  return useQuery({
    queryKey: ["policy", "running"],
    queryFn: async () => (await unwrap(api.GET("/v1/sandboxes", { params: { query: { state: "running" } } }))).sandboxes ?? [],
  });
}

export function usePolicyOf(id: string | undefined) {
  return useQuery({
    queryKey: ["policy", "of", id],
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{id}/policy", { params: { path: { id: id ?? "" } } })),
    enabled: id !== undefined,
  });
}

export function useVersions(id: string | undefined) {
  return useQuery({
    queryKey: ["policy", "versions", id],
    queryFn: () => call<Version[]>("GET", `/sandboxes/${encodeURIComponent(id ?? "")}/policy/versions`),
    enabled: id !== undefined,
  });
}

export function lint(document: string): Promise<LintResult> {
  return call<LintResult>("POST", "/policy/lint", { document });
}

export type Explained = Explanation & { steps?: Step[] | null };

export function explain(of: { document: string } | { sandbox: string }, method: string, url: string): Promise<Explained> {
  return call<Explained>("POST", "/policy/explain", { ...of, method, url });
}

export type Level = "strict" | "standard" | "light" | "minimal";
export type Net = "none" | "dev" | "open" | "policy";

/** apply replaces the access of a running sandbox. */
export function apply(id: string, access: { level: Level; net: Net; policy: string }) {
  return unwrap(api.PUT("/v1/sandboxes/{id}/access", { params: { path: { id } }, body: access }));
}
