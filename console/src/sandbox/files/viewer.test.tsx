import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type Sandbox, SandboxContext } from "../queries";
import type { EditorProps } from "./editor";
import type { Files } from "./inside";
import type { FileEntry } from "./tree";
import { Viewer } from "./viewer";

vi.mock("../../api/session", () => ({ useCan: () => true }));
// An editor with buttons instead of keys; it shows the text that it is given.
vi.mock("./editor", () => ({
  Editor: ({ text, writable, view, onChange, onSave }: EditorProps) => {
    view.current = { state: { sliceDoc: () => `${text} and more` } } as never;
    return (
      <>
        <p>{`${writable ? "edits" : "reads"} ${text.slice(0, 20)}`}</p>
        <button onClick={() => onChange(true)}>type</button>
        <button onClick={onSave}>Ctrl-S</button>
      </>
    );
  },
}));

const path = "/workspace/a.txt";
const entry = (modified_at: string): FileEntry => ({ name: "a.txt", path, type: "file", size: 3, modified_at });

describe("a file", () => {
  let inside: { text: string; at: string };
  let written: string[];
  let queries: QueryClient;
  const files = {
    list: async () => [entry(inside.at)],
    read: async () => new TextEncoder().encode(inside.text),
    write: async (_: string, body: Uint8Array) => {
      written.push(new TextDecoder().decode(body));
      inside = { text: written.at(-1) ?? "", at: "later" };
    },
    url: () => "#",
  };
  beforeEach(() => {
    inside = { text: "one", at: "first" };
    written = [];
    queries = new QueryClient();
  });
  afterEach(cleanup);
  const page = () => (
    <QueryClientProvider client={queries}>
      <SandboxContext value={{ id: "s1" } as Sandbox}>
        <Viewer files={files as unknown as Files} path={path} entry={entry(inside.at)} rename={() => undefined} remove={() => undefined} onDirty={() => undefined} />
      </SandboxContext>
    </QueryClientProvider>
  );
  let reread: () => void;
  const show = async () => {
    const shown = render(page());
    reread = () => shown.rerender(page());
    await screen.findByText(/^reads /);
  };
  const click = (name: string) => userEvent.click(screen.getByRole("button", { name }));

  it("is never written while it is only viewed, even with the shortcut", async () => {
    inside.text = "x".repeat((1 << 20) + 5);
    await show();
    await click("Ctrl-S");
    expect(written).toEqual([]);
  });

  it("is saved by the shortcut once it was edited", async () => {
    await show();
    await click("Edit");
    await click("Ctrl-S");
    expect(written).toEqual([]);
    await click("type");
    await click("Ctrl-S");
    expect(await screen.findByText("reads one and more")).toBeDefined();
    expect(written).toEqual(["one and more"]);
  });

  it("is not reloaded while a person edits it, and saving does not overwrite a newer version", async () => {
    await show();
    await click("Edit");
    await click("type");
    inside = { text: "two", at: "second" };
    // The stream is connected again: everything is read again, including the tree.
    await act(() => queries.invalidateQueries());
    reread();
    expect(screen.getByText("edits one")).toBeDefined();
    await click("Ctrl-S");
    expect(await screen.findByRole("alertdialog", { name: "The file has changed" })).toBeDefined();
    expect(written).toEqual([]);
  });
});
