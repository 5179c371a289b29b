import { RouterProvider, createMemoryHistory, createRootRoute, createRouter } from "@tanstack/react-router";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { FleetRow } from "../api/console";
import { Line, Tile } from "./sandbox";
import { BulkDialog } from "./bulkdialog";
import type { SandboxProps } from "./facts";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const hostile = 'evil\u202egnp.exe\u200b <img src=x onerror="alert(1)">\u001b]8;;http://x\u0007';
const row: FleetRow = {
  id: "sandbox1",
  name: hostile,
  template: hostile,
  state: "running",
  level: "strict",
  engine: "gvisor",
  boundary: "userspace-kernel",
  owner: hostile,
  labels: { [hostile]: hostile },
  created_at: "2026-01-01T00:00:00Z",
  ends_at: null,
  last_command: { text: hostile, at: "2026-01-01T00:00:00Z", exit_code: 7 },
  pending: 2,
  denied: 5,
  oom: true,
  attention: 9,
  attention_why: hostile,
};
const props: SandboxProps = {
  row,
  index: 4,
  total: 10,
  chosen: false,
  current: true,
  operator: true,
  onChoose: vi.fn(),
  onAct: vi.fn(),
  onOpen: vi.fn(),
};

async function show(element: React.ReactNode) {
  const router = createRouter({
    routeTree: createRootRoute({ component: () => element }),
    history: createMemoryHistory({ initialEntries: ["/"] }),
  });
  const shown = render(<RouterProvider router={router as never} />);
  await shown.findAllByText(/evilgnp\.exe/);
  return shown;
}

// All text that a reader or a screen reader gets.
function visibleText(container: HTMLElement): string {
  const attributes = [...container.querySelectorAll("*")].flatMap((e) =>
    ["aria-label", "title", "alt", "placeholder"].map((name) => e.getAttribute(name) ?? ""),
  );
  return [container.textContent ?? "", ...attributes].join("\n");
}

describe.each([
  ["a tile", Tile],
  ["a line", Line],
])("%s", (what, Box) => {
  it("shows no characters with which its sandbox could deceive", async () => {
    const { container } = await show(<Box {...props} />);
    // eslint-disable-next-line no-control-regex -- what must not be there
    expect(visibleText(container)).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/);
    expect(container.querySelector("img, script")).toBeNull();
    expect(screen.getAllByRole("img", { name: "cleaned" }).length).toBeGreaterThan(0);
  });

  it("shows in text why a person should look", async () => {
    const { container } = await show(<Box {...props} />);
    for (const words of ["running", "2 waiting", "5 denied", "out of memory", "exit 7", "strict", "userspace-kernel"]) {
      expect(container.textContent, words).toContain(words);
    }
    expect(screen.getByRole(what === "a tile" ? "listitem" : "row", { name: /^evilgnp\.exe .*, running$/ })).toBeDefined();
  });

  it("has no checkbox for a viewer", async () => {
    await show(<Box {...props} operator={false} />);
    expect(screen.queryByRole("checkbox")).toBeNull();
  });
});

describe("an action on many sandboxes", () => {
  it("does nothing before it is confirmed, and shows each result", async () => {
    const requests = vi.fn((request: Request) =>
      Promise.resolve(
        request.method === "GET"
          ? Response.json({ state: request.url.endsWith("/sandbox4") ? "stopped" : "running" })
          : request.url.includes("/sandbox2/")
            ? new Response('{"code":"state_conflict","detail":"it is being paused","status":409}', { status: 409, headers: { "Content-Type": "application/problem+json" } })
            : Response.json({ state: "stopped" }),
      ),
    );
    vi.stubGlobal("fetch", requests);
    const close = vi.fn();
    const sandboxes = [row, { ...row, id: "sandbox2", name: "two" }, { ...row, id: "sandbox3", name: "three", state: "stopped" }, { ...row, id: "sandbox4", name: "four" }];
    await show(<BulkDialog act="stop" rows={sandboxes} onClose={close} />);
    expect(requests).not.toHaveBeenCalled();
    await userEvent.click(screen.getByRole("button", { name: "Stop 3 sandboxes" }));
    expect((await screen.findByText("2 stopped, 1 failed")).getAttribute("role")).toBe("status");
    expect(screen.getByText("it is being paused")).toBeDefined();
    // The fourth has ended since. Removing it would delete its retained changes and recordings.
    expect(requests.mock.calls.map(([r]) => [r.method, new URL(r.url).pathname]).filter(([method]) => method !== "GET")).toEqual([
      ["POST", "/console/api/v1/sandboxes/sandbox1/timeout"],
      ["POST", "/console/api/v1/sandboxes/sandbox2/timeout"],
    ]);
    await userEvent.click(screen.getAllByRole("button", { name: "Close" }).at(-1) as HTMLElement);
    expect(close).toHaveBeenCalledWith(["sandbox2"]);
  });
});
