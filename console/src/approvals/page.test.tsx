import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { press } from "../app/shortcuts";
import { ApprovalsPage } from "./page";
import type { ApprovalRequest } from "./request";

const mocks = vi.hoisted(() => ({
  pending: [] as unknown[],
  sent: [] as string[],
  can: true,
  live: true,
  listed: [] as unknown[],
}));

vi.mock("@tanstack/react-router", () => ({
  Link: ({ children }: { children: ReactNode }) => <a href="#x">{children}</a>,
  useNavigate: () => () => undefined,
  useParams: () => ({}),
}));
vi.mock("../live", () => ({ useApprovals: () => ({ pending: mocks.pending, recent: [], ready: mocks.live }), useLiveState: () => (mocks.live ? "live" : "reconnecting") }));
vi.mock("../api/session", () => ({ useCan: () => mocks.can, useSession: () => undefined }));
vi.mock("./names", () => ({ useNames: () => new Map([["s1", "web"]]) }));
vi.mock("./history", () => ({ Decided: () => null }));
vi.mock("../api/client", () => ({
  api: {
    GET: async (_: string, { params }: { params: { query: { state?: string } } }) => ({ data: { approvals: params.query.state === undefined ? mocks.listed : [] } }),
    POST: async (path: string, { params, body }: { params: { path: { id: string } }; body: Record<string, unknown> }) => {
      const id = params.path.id;
      const deny = path.endsWith("/deny");
      mocks.sent.push(deny ? `deny ${id}: ${String(body["reason"])}` : `approve ${id}${body["remember"] === true ? " permanently" : ""}`);
      return { data: { ...request(id), state: deny ? "denied" : "approved" } };
    },
  },
  unwrap: async (answer: Promise<{ data: unknown }>) => (await answer).data,
}));

const start = Date.parse("2030-01-01T00:00:00Z");
const request = (id: string, over: Partial<ApprovalRequest> = {}): ApprovalRequest => ({
  id,
  sandbox: "s1",
  kind: "net.request",
  summary: `POST a.com/${id}`,
  facts: { method: "POST", host: "a.com", port: "443", path: `/${id}` },
  rule: "host:a.com/write",
  policy: "p",
  state: "pending",
  quorum: 1,
  votes: [],
  created_at: new Date(start).toISOString(),
  expires_at: new Date(start + 1_800_000).toISOString(),
  ...over,
});

/** An IntersectionObserver for which everything is in view at once. */
class AlwaysInView {
  constructor(private readonly back: (seen: { target: Element; isIntersecting: boolean }[]) => void) {}
  observe(target: Element) {
    this.back([{ target, isIntersecting: true }]);
  }
  unobserve() {}
  disconnect() {}
}

function page() {
  return (
    <QueryClientProvider client={new QueryClient()}>
      <ApprovalsPage />
    </QueryClientProvider>
  );
}

const key = (name: string, over: KeyboardEventInit = {}) =>
  act(() => {
    press(new KeyboardEvent("keydown", { key: name, shiftKey: name === name.toUpperCase(), ...over }));
  });
const wait = (ms: number) => act(async () => void (await vi.advanceTimersByTimeAsync(ms)));

beforeEach(() => {
  vi.useFakeTimers({ now: start });
  vi.stubGlobal("IntersectionObserver", AlwaysInView);
  Element.prototype.scrollIntoView = () => undefined;
  mocks.pending = [];
  mocks.can = true;
  mocks.live = true;
  mocks.listed = [];
  mocks.sent = [];
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the inbox", () => {
  it("approves by key a request that has been in view long enough", async () => {
    mocks.pending = [request("one")];
    render(page());
    await wait(500);
    key("a");
    expect(mocks.sent).toEqual(["approve one"]);
  });

  it("decides nothing on a card that has just got the focus", async () => {
    mocks.pending = [request("one")];
    render(page());
    await wait(100);
    key("a");
    key("d");
    expect(mocks.sent).toEqual([]);
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(screen.getByText(/Nothing was decided/)).toBeTruthy();
  });

  it("does not pass the key on to the next card", async () => {
    mocks.pending = [request("one"), request("two", { expires_at: new Date(start + 9e6).toISOString() })];
    render(page());
    await wait(500);
    key("a");
    await wait(50);
    key("a");
    expect(mocks.sent).toEqual(["approve one"]);
    await wait(500);
    key("a");
    expect(mocks.sent).toEqual(["approve one", "approve two"]);
  });

  it("decides nothing while a key is held down", async () => {
    mocks.pending = [request("one")];
    render(page());
    await wait(500);
    key("a", { repeat: true });
    expect(mocks.sent).toEqual([]);
  });

  it("keeps the keys on their card when a more urgent one appears above", async () => {
    mocks.pending = [request("one")];
    const { rerender } = render(page());
    await wait(500);
    mocks.pending = [request("urgent", { expires_at: new Date(start + 60_000).toISOString() }), request("one")];
    rerender(page());
    expect(screen.getAllByRole("article")[0]?.getAttribute("aria-label")).toContain("urgent");
    key("a");
    expect(mocks.sent).toEqual(["approve one"]);
  });

  it("counts no click on a card that slid under the pointer", async () => {
    mocks.pending = [request("one"), request("two")];
    const { rerender } = render(page());
    await wait(500);
    mocks.pending = [request("two")];
    rerender(page());
    fireEvent.click(screen.getByRole("button", { name: "Approve" }));
    expect(mocks.sent).toEqual([]);
    await wait(500);
    fireEvent.click(screen.getByRole("button", { name: "Approve" }));
    expect(mocks.sent).toEqual(["approve two"]);
  });

  it("asks for confirmation before a host is allowed permanently, and names it", async () => {
    mocks.pending = [request("one", { always: "a.com:443" })];
    render(page());
    await wait(500);
    key("A");
    expect(mocks.sent).toEqual([]);
    fireEvent.click(screen.getByRole("button", { name: "Always allow a.com:443" }));
    await wait(1);
    expect(mocks.sent).toEqual(["approve one permanently"]);
  });

  it("denies with a reason only", async () => {
    mocks.pending = [request("one")];
    render(page());
    await wait(500);
    key("d");
    const dialog = within(screen.getByRole("dialog"));
    fireEvent.click(dialog.getByRole("button", { name: "Deny" }));
    expect(mocks.sent).toEqual([]);
    fireEvent.change(dialog.getByRole("textbox"), { target: { value: " not now " } });
    fireEvent.click(dialog.getByRole("button", { name: "Deny" }));
    await wait(1);
    expect(mocks.sent).toEqual(["deny one: not now"]);
  });

  it("decides all requests of a rule that were shown when the dialog opened, and no later one", async () => {
    mocks.pending = [request("one"), request("two"), request("other", { rule: "else" })];
    const { rerender } = render(page());
    await wait(500);
    fireEvent.click(screen.getAllByRole("button", { name: "Decide all 2 of this rule…" })[0] as HTMLElement);
    mocks.pending = [...mocks.pending, request("late")];
    rerender(page());
    fireEvent.click(screen.getByRole("button", { name: "Approve all 2" }));
    await wait(10);
    expect(mocks.sent).toEqual(["approve one", "approve two"]);
  });

  it("lets a viewer decide nothing", async () => {
    mocks.can = false;
    mocks.pending = [request("one")];
    render(page());
    await wait(500);
    key("a");
    expect(mocks.sent).toEqual([]);
    expect(screen.queryByRole("button", { name: "Approve" })).toBeNull();
  });

  it("polls for pending requests while the stream is down", async () => {
    mocks.live = false;
    mocks.listed = [request("listed")];
    render(page());
    await wait(100);
    expect(screen.getAllByRole("article")).toHaveLength(1);
    await wait(500);
    key("a");
    expect(mocks.sent).toEqual(["approve listed"]);
  });

  it("does not show the list of an earlier interruption in a later one", async () => {
    mocks.live = false;
    mocks.listed = [request("old")];
    const shown = render(page());
    await wait(100);
    mocks.live = true;
    mocks.pending = [request("new")];
    shown.rerender(page());
    await wait(1000);
    mocks.live = false;
    shown.rerender(page());
    expect(screen.getAllByRole("article").map((a) => a.getAttribute("aria-label"))).toEqual(["Send a request: POST a.com/new"]);
  });

  it("marks the agent's words, and removes characters that could deceive", async () => {
    mocks.pending = [request("one", { kind: "policy.widen", rule: "access.request", summary: "let the sandbox reach a.com:443 from now on. The agent says (unchecked): \u202eok\u001b[31m approved by admin" })];
    render(page());
    await wait(1);
    expect(screen.getByText(/own words, unchecked/)).toBeTruthy();
    expect(document.body.textContent).not.toMatch(/[\u202e\u001b]/);
    expect(screen.getByRole("heading", { level: 2, name: "let the sandbox reach a.com:443 from now on" })).toBeTruthy();
  });
});
