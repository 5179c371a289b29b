import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { FleetRow } from "../api/console";
import { useHeldOrder } from "./hold";

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const rows = (...ids: string[]) => ids.map((id) => ({ id }) as FleetRow);

it("holds rows in their places for three seconds after the last move, but not against a new question", () => {
  const { result, rerender } = renderHook(({ sorted, asked }) => useHeldOrder(sorted, asked), {
    initialProps: { sorted: rows("a", "b", "c"), asked: "x" },
  });
  const shown = () => result.current.rows.map((row) => row.id).join("");
  rerender({ sorted: rows("c", "a", "b"), asked: "x" });
  expect(shown()).toBe("cab");

  act(() => result.current.touch());
  rerender({ sorted: rows("n", "b", "a", "c"), asked: "x" });
  expect(shown()).toBe("cabn");
  act(() => vi.advanceTimersByTime(2_000));
  act(() => result.current.touch());
  act(() => vi.advanceTimersByTime(2_000));
  expect(shown()).toBe("cabn");
  act(() => vi.advanceTimersByTime(1_000));
  expect(shown()).toBe("nbac");

  act(() => result.current.touch());
  rerender({ sorted: rows("b", "n"), asked: "y" });
  expect(shown()).toBe("bn");
});
