import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { asProblem } from "../api/problem";
import { sessionQuery, signIn } from "../api/session";
import { signOutReason, isNotSession } from "../app/query";
import { Mark } from "../app/mark";
import { Button } from "../parts/button";
import { Field } from "../parts/form";
import { Problem } from "../parts/page";
import { CopyText } from "../parts/values";
import "./signin.css";

/** Accepts a link, or only the token at its end. */
export function tokenIn(text: string): string {
  const at = text.lastIndexOf("#token=");
  return (at < 0 ? text : text.slice(at + "#token=".length)).trim();
}

/** The sign-in page: a one-time link, pasted here or opened. */
export function SignInPage({ token, onDone }: { token: string | null; onDone: () => void }) {
  const queries = useQueryClient();
  // A page with a token has no session yet, so none is requested.
  const session = useQuery({ ...sessionQuery, enabled: false }).data;
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(token !== null);
  const attempted = useRef<string | null>(null);

  const enter = async (given: string) => {
    setBusy(true);
    setError(undefined);
    try {
      const session = await signIn(given);
      signOutReason.text = "";
      // This session must not see data that another session has read here.
      queries.removeQueries({ predicate: isNotSession });
      queries.setQueryData(sessionQuery.queryKey, session);
      onDone();
    } catch (thrown) {
      setError(asProblem(thrown));
      setBusy(false);
    }
  };

  useEffect(() => {
    // A token is sent once, and never again.
    if (token === null || attempted.current === token) return;
    attempted.current = token;
    void enter(token);
  });

  useEffect(() => {
    document.title = "Sign in · Crannog";
  }, []);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const given = tokenIn(text);
    if (given !== "" && !busy) void enter(given);
  };

  return (
    <main className="signin">
      <div className="signin-card">
        <header>
          <Mark size={28} />
          <h1>Sign in to Crannog</h1>
        </header>
        {signOutReason.text && !busy && <p role="status">{signOutReason.text}</p>}
        <p className="quiet">There is no password. On the machine that runs the server, create a link that works once:</p>
        <CopyText text="crannog console" />
        {error !== undefined && <Problem error={error} />}
        <form onSubmit={submit}>
          <Field label="Link or token" hint="It is valid once, for ten minutes.">
            <input
              type="password"
              autoComplete="off"
              spellCheck={false}
              value={text}
              onChange={(event) => setText(event.currentTarget.value)}
            />
          </Field>
          <Button type="submit" variant="primary" busy={busy}>
            {busy ? "Signing in" : "Sign in"}
          </Button>
        </form>
        {session && !busy && <Button onClick={onDone}>Continue as {session.name || session.scope}</Button>}
      </div>
    </main>
  );
}
