import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { StrictMode } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { onSignedOut } from "../api/client";
import { sessionQuery } from "../api/session";
import { eventTimeout } from "../app/timeout.fixture";
import { SignInPage } from "./page";

const session = { id: "s1", name: "local", scope: "viewer", version: "1" };
const json = (status: number, body: unknown) => new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });

describe("signing in", () => {
  const requests = vi.fn<(input: string, init: RequestInit) => Promise<Response>>();
  let queries: QueryClient;
  beforeEach(() => {
    requests.mockReset();
    vi.stubGlobal("fetch", requests);
    queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    queries.setQueryData(sessionQuery.queryKey, null);
  });
  afterEach(() => {
    cleanup();
    vi.unstubAllGlobals();
  });
  const show = (token: string | null, done = vi.fn()) => {
    render(
      <StrictMode>
        <QueryClientProvider client={queries}>
          <SignInPage token={token} onDone={done} />
        </QueryClientProvider>
      </StrictMode>,
    );
    return done;
  };

  it("uses a token of the address once", async () => {
    requests.mockResolvedValue(json(200, session));
    queries.setQueryData(["keys"], ["read by an admin before"]);
    const done = show("abcdefghijklmnop");
    await vi.waitFor(() => expect(done).toHaveBeenCalled(), eventTimeout);
    expect(requests.mock.calls.map(([url, init]) => [url, init.method, init.body])).toEqual([["/console/api/session", "POST", '{"token":"abcdefghijklmnop"}']]);
    expect(queries.getQueryData(sessionQuery.queryKey)).toEqual(session);
    expect(queries.getQueryData(["keys"])).toBeUndefined();
  });

  it("shows why it failed, and accepts another link", async () => {
    requests.mockResolvedValueOnce(json(401, { code: "token_invalid", detail: "the token was used" }));
    const out = vi.fn();
    const stop = onSignedOut(out);
    const done = show("abcdefghijklmnop");
    expect((await screen.findByRole("alert")).textContent).toContain("the token was used");
    expect(done).not.toHaveBeenCalled();
    // No session was ended: the browser may have a session besides the bad link.
    expect(out).not.toHaveBeenCalled();
    requests.mockResolvedValueOnce(json(200, session));
    await userEvent.type(screen.getByLabelText("Link or token"), "http://x/console/#token=another{Enter}");
    await vi.waitFor(() => expect(done).toHaveBeenCalled(), eventTimeout);
    expect(requests.mock.lastCall?.[1].body).toBe('{"token":"another"}');
    stop();
  });

  it("sends no request without a token", () => {
    show(null);
    expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("Sign in to Crannog");
    expect(requests).not.toHaveBeenCalled();
  });

  it("lets a user who is already signed in continue", async () => {
    queries.setQueryData(sessionQuery.queryKey, session as never);
    const done = show(null);
    await userEvent.click(screen.getByRole("button", { name: "Continue as local" }));
    expect(done).toHaveBeenCalled();
  });
});
