import { MutationCache, QueryClient } from "@tanstack/react-query";
import { ApiProblem, asProblem } from "../api/problem";
import { onSignedOut } from "../api/client";
import { sessionQuery } from "../api/session";
import { live } from "../live/live";
import { toast } from "../parts/toast";

/** The cache of data that pages have read. */
export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      gcTime: 2 * 60_000,
      // The server would reject a repeated request again.
      retry: (count, error) => count < 2 && !(error instanceof ApiProblem && error.status >= 400 && error.status < 500),
      refetchOnWindowFocus: false,
    },
    mutations: { retry: false },
  },
  mutationCache: new MutationCache({
    // A page that shows its own errors sets meta {quiet: true}.
    onError: (error, _input, _context, mutation) => {
      if (mutation.meta?.["quiet"] !== true) toast(asProblem(error).text, { tone: "bad" });
    },
  }),
});

/** The reason for showing the sign-in page, if there was a session before. */
export const signOutReason = { text: "" };

/** Connects session, stream and cache. It is called once, at the start. */
export function beginQueries() {
  onSignedOut(() => {
    const session = queries.getQueryData(sessionQuery.queryKey);
    if (!session) return;
    signOutReason.text = Date.parse(session.expires_at) <= Date.now() ? "Your session has expired." : "Your session has ended.";
    live.stop();
    queries.setQueryData(sessionQuery.queryKey, null);
    // Drop the data, because the next user may be another person. Do it later: the mounted pages
    // would read the data again at once.
    setTimeout(() => queries.removeQueries({ predicate: isNotSession }), 0);
  });
  // While the stream was broken, any data may have changed.
  live.onReturn.on(() => {
    void queries.invalidateQueries({ predicate: isNotSession });
  });
}

/** Reports whether a query is any but the one for the session itself. */
export function isNotSession(query: { queryKey: readonly unknown[] }): boolean {
  return query.queryKey[0] !== sessionQuery.queryKey[0];
}
