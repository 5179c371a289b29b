// Sending a decision, and remembering which questions this tab has answered
// until the stream says the same.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { Question } from "./question";

export type Decision = { do: "approve"; remember: boolean } | { do: "deny"; reason: string };

/** send puts one decision to the server and returns the question as it stands then. */
export async function send(id: string, d: Decision): Promise<Question> {
  const params = { path: { id } };
  if (d.do === "deny") return unwrap(api.POST("/v1/approvals/{id}/deny", { params, body: { reason: d.reason } }));
  return unwrap(api.POST("/v1/approvals/{id}/approve", { params, body: d.remember ? { remember: true } : {} }));
}

export interface Failed {
  question: Question;
  error: unknown;
}

/** sendAll decides one after the other, so that one that fails stops no other. */
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

/**
 * usePending are the questions that wait, asked for every few seconds: for as
 * long as the stream does not tell of them.
 */
export function usePending(wanted: boolean) {
  return useQuery({
    queryKey: ["approvals", "pending"],
    queryFn: async (): Promise<Question[]> => (await unwrap(api.GET("/v1/approvals", { params: { query: { limit: 100 } } }))).approvals ?? [],
    enabled: wanted,
    refetchInterval: 5_000,
  });
}

/** useDecided are the last questions that were answered or ran out. */
export function useDecided(stamp: unknown) {
  return useQuery({
    queryKey: ["approvals", "decided", stamp],
    queryFn: async (): Promise<Question[]> =>
      (await unwrap(api.GET("/v1/approvals", { params: { query: { state: "approved,spent,denied,expired", limit: 50 } } }))).approvals ?? [],
    placeholderData: (before) => before,
  });
}

/** useQuestion is one question, whatever has come of it. */
export function useQuestion(id: string | undefined, stamp: unknown) {
  return useQuery({
    queryKey: ["approvals", "one", id, stamp],
    queryFn: (): Promise<Question> => unwrap(api.GET("/v1/approvals/{id}", { params: { path: { id: id ?? "" } } })),
    enabled: id !== undefined,
    placeholderData: (before) => (before?.id === id ? before : undefined),
  });
}
