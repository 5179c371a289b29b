// Reads approval requests and sends decisions.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { ApprovalRequest } from "./request";

export type Decision = { do: "approve"; remember: boolean } | { do: "deny"; reason: string };

/** send sends one decision to the server and returns the approval request with its new state. */
export async function send(id: string, d: Decision): Promise<ApprovalRequest> {
  const params = { path: { id } };
  if (d.do === "deny") return unwrap(api.POST("/v1/approvals/{id}/deny", { params, body: { reason: d.reason } }));
  return unwrap(api.POST("/v1/approvals/{id}/approve", { params, body: d.remember ? { remember: true } : {} }));
}

export interface Failed {
  request: ApprovalRequest;
  error: unknown;
}

/** sendAll decides several requests, one after the other; a failure does not stop the others. */
export async function sendAll(requests: readonly ApprovalRequest[], d: Decision, each: (id: string) => void): Promise<Failed[]> {
  const failed: Failed[] = [];
  for (const request of requests) {
    try {
      await send(request.id, d);
      each(request.id);
    } catch (error) {
      failed.push({ request, error });
    }
  }
  return failed;
}

/**
 * usePending returns the pending approval requests. It polls while the stream does not deliver
 * them.
 */
export function usePending(enabled: boolean) {
  return useQuery({
    queryKey: ["approvals", "pending"],
    queryFn: async (): Promise<ApprovalRequest[]> => (await unwrap(api.GET("/v1/approvals", { params: { query: { limit: 100 } } }))).approvals ?? [],
    enabled,
    refetchInterval: 5_000,
  });
}

/** useDecided returns the last approval requests that were decided or expired. */
export function useDecided(stamp: unknown) {
  return useQuery({
    queryKey: ["approvals", "decided", stamp],
    queryFn: async (): Promise<ApprovalRequest[]> =>
      (await unwrap(api.GET("/v1/approvals", { params: { query: { state: "approved,spent,denied,expired", limit: 50 } } }))).approvals ?? [],
    placeholderData: (before) => before,
  });
}

/** useRequest returns one approval request in any state. */
export function useRequest(id: string | undefined, stamp: unknown) {
  return useQuery({
    queryKey: ["approvals", "one", id, stamp],
    queryFn: (): Promise<ApprovalRequest> => unwrap(api.GET("/v1/approvals/{id}", { params: { path: { id: id ?? "" } } })),
    enabled: id !== undefined,
    placeholderData: (before) => (before?.id === id ? before : undefined),
  });
}
