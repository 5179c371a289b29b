// The names of sandboxes that have approval requests.
import { useQueries } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { ApprovalRequest } from "./request";

/**
 * useNames returns the names of the requests' sandboxes by ID, without removed sandboxes and those
 * that have no name.
 */
export function useNames(requests: readonly ApprovalRequest[]): ReadonlyMap<string, string> {
  const ids = [...new Set(requests.map((q) => q.sandbox))];
  const answers = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["sandbox-name", id],
      queryFn: async () => (await unwrap(api.GET("/v1/sandboxes/{id}", { params: { path: { id } } }))).name ?? "",
      staleTime: Number.POSITIVE_INFINITY,
      retry: false,
    })),
  });
  return new Map(ids.map((id, i) => [id, answers[i]?.data ?? ""] as const).filter(([, name]) => name !== ""));
}
