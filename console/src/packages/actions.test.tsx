import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Actions } from "./actions";

const calls: { path: string; body: unknown }[] = [];
let damaged: string[] = [];

beforeEach(() => {
  calls.length = 0;
  damaged = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const path = new URL(request.url).pathname;
    const text = await request.text();
    calls.push({ path, body: text ? JSON.parse(text) : null });
    return path.endsWith("/prune") ? Response.json({ removed: 2, freed_bytes: 2048 }) : Response.json({ verified: 3, size_bytes: 1024, damaged });
  });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const show = (empty = false) =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Actions used={4096} empty={empty} />
    </QueryClientProvider>,
  );

it("removes only after a size was typed, and shows the result", async () => {
  show();
  fireEvent.click(screen.getByRole("button", { name: /^Remove until/ }));
  const send = () => screen.getByRole<HTMLButtonElement>("button", { name: /^Remove( everything)?$/ });
  expect(send().disabled).toBe(true);
  fireEvent.change(screen.getByLabelText("Data to keep"), { target: { value: "1x" } });
  expect(send().disabled).toBe(true);
  fireEvent.change(screen.getByLabelText("Data to keep"), { target: { value: "1k" } });
  fireEvent.click(send());
  expect(await screen.findByText("Removed 2 entries, which freed 2.00 KiB.")).toBeTruthy();
  expect(calls).toEqual([{ path: "/console/api/v1/package-cache/prune", body: { keep_bytes: 1024 } }]);
});

it("sends zero when everything is to be removed", async () => {
  show();
  fireEvent.click(screen.getByRole("button", { name: /^Remove until/ }));
  fireEvent.change(screen.getByLabelText("Data to keep"), { target: { value: "0" } });
  fireEvent.click(screen.getByRole("button", { name: "Remove everything" }));
  await screen.findByText(/^Removed 2 entries/);
  expect(calls[0]?.body).toEqual({ keep_bytes: 0 });
});

it("shows what a verification found", async () => {
  show();
  fireEvent.click(screen.getByRole("button", { name: "Verify" }));
  expect((await screen.findByRole("status")).textContent).toContain("Verified 3 contents, 1.00 KiB. All have the digest");
  damaged = ["d".repeat(64)];
  fireEvent.click(screen.getByRole("button", { name: "Verify" }));
  expect((await screen.findByRole("alert")).textContent).toContain("1 damaged content was removed");
  expect(screen.getByText("dddddddddddd…")).toBeTruthy();
});

it("offers nothing while the cache is empty", () => {
  show(true);
  for (const button of screen.getAllByRole<HTMLButtonElement>("button")) expect(button.disabled).toBe(true);
});
