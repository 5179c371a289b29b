// Sends a decision, and remembers the approval requests that this tab has decided until the stream
// confirms it.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { Question } from "./question";

export type Decision = { do: "approve"; remember: boolean } | { do: "deny"; reason: string };

/** send sends one decision to the server and returns the approval request with its new state. */
export async function send(id: string, d: Decision): Promise<Question> {
  const params = { path: { id } };
  if (d.do === "deny") return unwrap(api.POST("/v1/approvals/{id}/deny", { params, body: { reason: d.reason } }));
  return unwrap(api.POST("/v1/approvals/{id}/approve", { params, body: d.remember ? { remember: true } : {} }));
}

export interface Failed {
  question: Question;
  error: unknown;
}

/** sendAll decides several requests, one after the other; a failure does not stop the others. */
export async function sendAll(questions: readonly Question[], d: Decision, each: (id: string) => void): Promise<Failed[]> {
  const failed: Failed[] = [];
  for (const question of questions) {
    try {
      await send(question.id, d);
      each(question.id);
    } catch (error) {
      failed.push({ question, error });
    }
  }
  return failed;
}

/** usePending returns the pending approval requests. It polls while the stream does not deliver them. */
export function usePending(wanted: boolean) {
  return useQuery({
    queryKey: ["approvals", "pending"],
    queryFn: async (): Promise<Question[]> => (await unwrap(api.GET("/v1/approvals", { params: { query: { limit: 100 } } }))).approvals ?? [],
    enabled: wanted,
    refetchInterval: 5_000,
  });
}

/** useDecided returns the last approval requests that were decided or expired. */
export function useDecided(stamp: unknown) {
  return useQuery({
    queryKey: ["approvals", "decided", stamp],
    queryFn: async (): Promise<Question[]> =>
      (await unwrap(api.GET("/v1/approvals", { params: { query: { state: "approved,spent,denied,expired", limit: 50 } } }))).approvals ?? [],
    placeholderData: (before) => before,
  });
}

/** useQuestion returns one approval request in any state. */
export function useQuestion(id: string | undefined, stamp: unknown) {
  return useQuery({
    queryKey: ["approvals", "one", id, stamp],
    queryFn: (): Promise<Question> => unwrap(api.GET("/v1/approvals/{id}", { params: { path: { id: id ?? "" } } })),
    enabled: id !== undefined,
    placeholderData: (before) => (before?.id === id ? before : undefined),
  });
}
