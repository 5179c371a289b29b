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

it("keeps the order of rows until three seconds after the user's last input, but not after a new search", () => {
  const { result, rerender } = renderHook(({ sorted, query }) => useHeldOrder(sorted, query), {
    initialProps: { sorted: rows("a", "b", "c"), query: "x" },
  });
  const shown = () => result.current.rows.map((row) => row.id).join("");
  rerender({ sorted: rows("c", "a", "b"), query: "x" });
  expect(shown()).toBe("cab");

  act(() => result.current.touch());
  rerender({ sorted: rows("n", "b", "a", "c"), query: "x" });
  expect(shown()).toBe("cabn");
  act(() => vi.advanceTimersByTime(2_000));
  act(() => result.current.touch());
  act(() => vi.advanceTimersByTime(2_000));
  expect(shown()).toBe("cabn");
  act(() => vi.advanceTimersByTime(1_000));
  expect(shown()).toBe("nbac");

  act(() => result.current.touch());
  rerender({ sorted: rows("b", "n"), query: "y" });
  expect(shown()).toBe("bn");
});
