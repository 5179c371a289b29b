import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { type Sandbox, SandboxContext } from "../queries";
import { FilesTab } from "./tab";

vi.mock("../search", () => ({ useFilters: () => [{}, () => undefined] }));
vi.mock("./browse", () => ({
  Browse: ({ onUnsaved }: { onUnsaved: (unsaved: boolean) => void }) => (
    <>
      <button onClick={() => onUnsaved(true)}>write</button>
      <button onClick={() => onUnsaved(false)}>discard</button>
    </>
  ),
}));
vi.mock("./changes", () => ({ Changes: () => <p>changes</p> }));
afterEach(cleanup);

const tab = (state: string) => (
  <SandboxContext value={{ id: "s1", state } as Sandbox}>
    <FilesTab />
  </SandboxContext>
);

it.each(["stopped", "paused"])("keeps unsaved text when the sandbox is %s", async (state) => {
  const { rerender } = render(tab("running"));
  await userEvent.click(screen.getByRole("button", { name: "write" }));
  rerender(tab(state));
  expect(screen.getByRole("alert").textContent).toContain(`The sandbox is ${state}`);
  await userEvent.click(screen.getByRole("button", { name: "discard" }));
  expect(screen.queryByRole("alert")).toBeNull();
  expect(screen.queryByRole("button", { name: "write" })).toBeNull();
});
