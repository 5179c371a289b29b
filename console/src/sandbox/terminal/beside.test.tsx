import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Beside } from "./beside";

const mocks = vi.hoisted(() => ({ terminals: [] as unknown[] }));
vi.mock("../queries", () => ({ useInside: () => ({ data: { terminals: mocks.terminals }, isPending: false }) }));
vi.mock("./attached", () => ({ Attached: ({ pid }: { pid: number }) => <p>{`terminal ${pid}`}</p> }));
vi.mock("./open", () => ({ OpenTerminal: () => null }));
afterEach(cleanup);

const terminal = (pid: number) => ({ pid, started_at: new Date(pid).toISOString(), viewers: 1 });

it("keeps its terminal while that is open, even if a program opens another one", () => {
  mocks.terminals = [terminal(4), terminal(7)];
  const { rerender } = render(<Beside />);
  expect(screen.getByText("terminal 7")).toBeDefined();
  mocks.terminals = [terminal(4), terminal(7), terminal(9)];
  rerender(<Beside />);
  expect(screen.getByText("terminal 7")).toBeDefined();
  mocks.terminals = [terminal(4), terminal(9)];
  rerender(<Beside />);
  expect(screen.getByText("terminal 9")).toBeDefined();
});
