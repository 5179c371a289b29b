import { queryOptions, useQuery } from "@tanstack/react-query";
import { base, call, parseResponse } from "./client";
import type { Scope, Session } from "./console";
import { ApiProblem } from "./problem";

const rank: Record<Scope, number> = { viewer: 0, operator: 1, admin: 2 };

/** Reports whether a scope includes another one. */
export function covers(has: Scope, needs: Scope): boolean {
  return rank[has] >= rank[needs];
}

/** The session of this browser, or null if it is not signed in. */
export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async ({ signal }): Promise<Session | null> => {
    try {
      return await call<Session>("GET", "/session", undefined, signal);
    } catch (thrown) {
      if (thrown instanceof ApiProblem && thrown.status === 401) return null;
      throw thrown;
    }
  },
  staleTime: Number.POSITIVE_INFINITY,
});

/** Exchanges a one-time token for a session; the browser keeps the cookie. */
export async function signIn(token: string): Promise<Session> {
  const headers = { "Content-Type": "application/json" };
  // A link that has expired leaves the existing session as it is.
  return parseResponse<Session>(await fetch(`${base}/session`, { method: "POST", credentials: "same-origin", headers, body: JSON.stringify({ token }) }));
}

/** Ends the session at the server. */
export function signOut(): Promise<unknown> {
  return call("DELETE", "/session");
}

/** The session of the page; undefined before it is known or if there is none. */
export function useSession(): Session | undefined {
  return useQuery(sessionQuery).data ?? undefined;
}

/** Reports whether the session has a scope. The server enforces it; this only hides controls. */
export function useCan(scope: Scope): boolean {
  const session = useSession();
  return session !== undefined && covers(session.scope, scope);
}
