import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiProblem } from "../api/problem";
import { Button, Code, Confirm, Dialog, Field, Inert, Table, Time, Verdict } from "./index";

afterEach(cleanup);

describe("Inert", () => {
  it.each([false, true])("shows markup only as text (block %s)", (block) => {
    const { container } = render(<Inert block={block} text={'<img src=x onerror="alert(1)"><script>alert(2)</script>'} />);
    expect(container.querySelector("img, script")).toBeNull();
    expect(container.textContent).toBe('<img src=x onerror="alert(1)"><script>alert(2)</script>');
  });

  it("shows that characters were removed, and only then", () => {
    const { rerender } = render(<Inert text={"pay\u200bpal \x1b[31mred"} />);
    expect(screen.getByRole("img", { name: "cleaned" })).toBeDefined();
    rerender(<Inert text="paypal red" />);
    expect(screen.queryByRole("img")).toBeNull();
  });

  it("shows it before the text, which may be cut off", () => {
    const { container } = render(<Inert text={`a\u202e${"b".repeat(500)}`} />);
    expect(container.querySelector(".p-inert")?.firstElementChild?.className).toBe("p-cleaned");
  });

  it("cannot reverse the text beside it", () => {
    const { container } = render(<Inert text={"שלום\u202e exe"} />);
    expect(container.querySelector("bdi")?.textContent).toBe("שלום exe");
  });

  it("also cleans shown source code", () => {
    const { container } = render(<Code text={"a\x1b]52;c;x\x07b\nc"} />);
    expect(container.querySelector("code")?.textContent).toBe("ab\nc");
  });
});

describe("Dialog", () => {
  it.each([
    [false, ["escape", "outside", "button"]],
    [true, ["button"]],
  ])("that stays %s closes by %j", async (stays, closing) => {
    const user = userEvent.setup({ pointerEventsCheck: 0 });
    const closed: string[] = [];
    let trying = "";
    render(
      <Dialog title="One" open onOpenChange={() => closed.push(trying)} stays={stays}>
        text
      </Dialog>,
    );
    trying = "escape";
    await user.keyboard("{Escape}");
    trying = "outside";
    await user.click(document.querySelector(".p-veil") ?? document.body);
    trying = "button";
    await user.click(screen.getByRole("button", { name: "Close" }));
    expect(closed).toEqual(closing);
  });
});

describe("text beside colours", () => {
  it.each([
    ["allow", "allowed"],
    ["deny", "denied"],
    ["ask", "asked"],
    ["other", "other"],
  ])("say %s", (effect, word) => {
    const { container } = render(<Verdict effect={effect} />);
    expect(container.textContent).toBe(word);
    expect(container.querySelector("svg[aria-hidden]")).not.toBeNull();
  });
});

describe("Time", () => {
  it("has UTC on hover, and accepts an invalid time", () => {
    const { container, rerender } = render(<Time at="2026-01-02T03:04:05Z" />);
    expect(container.querySelector("time")?.title).toBe("2026-01-02 03:04:05 UTC");
    rerender(<Time at="0" />);
    rerender(<Time at="yesterday" />);
    expect(container.textContent).toBe("–");
  });
});

describe("Button", () => {
  it("ignores a second click while it is busy", async () => {
    const run = vi.fn();
    render(
      <Button busy onClick={run}>
        Save
      </Button>,
    );
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    expect(run).not.toHaveBeenCalled();
  });
});

describe("Field", () => {
  it("names its control and its error", () => {
    render(
      <Field label="Name" hint="Unique." error="taken">
        <input />
      </Field>,
    );
    const input = screen.getByRole("textbox", { name: "Name" });
    const described = (input.getAttribute("aria-describedby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent);
    expect(described).toEqual(["Unique.", "taken"]);
    expect(input.getAttribute("aria-invalid")).toBe("true");
  });
});

describe("Confirm", () => {
  const dialog = (onConfirm: () => unknown, onOpenChange: (open: boolean) => void) =>
    render(<Confirm title="Stop it?" what="All is lost." action="Stop" danger open onOpenChange={onOpenChange} onConfirm={onConfirm} />);

  it("stays open with the server's error", async () => {
    const change = vi.fn();
    dialog(() => Promise.reject(new ApiProblem(409, "state_conflict", "it is being paused", "try again")), change);
    await userEvent.click(screen.getByRole("button", { name: "Stop" }));
    expect((await screen.findByRole("alert")).textContent).toContain("it is being paused");
    expect(change).not.toHaveBeenCalled();
  });

  it("closes after success, and does nothing on Cancel", async () => {
    const [change, run] = [vi.fn(), vi.fn(() => Promise.resolve())];
    dialog(run, change);
    await userEvent.click(screen.getByRole("button", { name: "Cancel" }));
    expect([run.mock.calls.length, change.mock.lastCall]).toEqual([0, [false]]);
    await userEvent.click(screen.getByRole("button", { name: "Stop" }));
    expect(run).toHaveBeenCalledTimes(1);
  });
});

describe("Table", () => {
  const columns = [{ id: "n", header: "Name", cell: (row: string) => <a href="#x">{row}</a> }];
  it("opens a row by key and click, but not by a link in it", async () => {
    const open = vi.fn();
    render(<Table columns={columns} rows={["a", "b"]} rowKey={(r) => r} rowLabel={(r) => `row ${r}`} onOpen={open} />);
    const first = screen.getByRole("row", { name: "row a" });
    first.focus();
    await userEvent.keyboard("j");
    expect(document.activeElement).toBe(screen.getByRole("row", { name: "row b" }));
    await userEvent.keyboard("{Enter}");
    expect(open.mock.lastCall).toEqual(["b"]);
    await userEvent.click(screen.getByRole("link", { name: "a" }));
    expect(open).toHaveBeenCalledTimes(1);
  });

  it("shows its text if it is empty", () => {
    render(<Table columns={columns} rows={[]} rowKey={(r) => r} rowLabel={(r) => r} empty={<p>nothing</p>} />);
    expect(screen.getByText("nothing")).toBeDefined();
    expect(screen.queryByRole("table")).toBeNull();
  });
});
