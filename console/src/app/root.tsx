import { useQuery } from "@tanstack/react-query";
import { Suspense, lazy, useEffect, useState } from "react";
import { sessionQuery } from "../api/session";
import { live } from "../live";
import { Loading, Problem } from "../parts/page";
import { takeToken } from "../signin/token";
import { Shell } from "./shell";

const SignInPage = lazy(() => import("../signin/page").then((m) => ({ default: m.SignInPage })));

// Taken before any other code reads the address.
const tokenAtStart = takeToken();

/**
 * The sign-in page or the console. The requested page stays in the address while the user signs in.
 */
export function Root() {
  const [token, setToken] = useState(tokenAtStart);
  // A page that is opened with a token usually has no session yet, so do not ask for one.
  const session = useQuery({ ...sessionQuery, enabled: token === null });
  const signedIn = session.data?.id;

  useEffect(() => {
    // A link that is opened in a tab with the console changes only the fragment and loads nothing.
    const takeFromAddress = () => {
      const taken = takeToken();
      if (taken !== null) setToken(taken);
    };
    window.addEventListener("hashchange", takeFromAddress);
    return () => window.removeEventListener("hashchange", takeFromAddress);
  }, []);

  useEffect(() => {
    if (!signedIn) return;
    live.start();
    return () => live.stop();
  }, [signedIn]);

  if (token !== null || session.data === null) {
    return (
      <Suspense fallback={<Loading />}>
        <SignInPage token={token} onDone={() => setToken(null)} />
      </Suspense>
    );
  }
  if (session.isError) {
    return (
      <main className="app-alone">
        <Problem error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  }
  if (!session.data) return <Loading />;
  return <Shell session={session.data} />;
}
