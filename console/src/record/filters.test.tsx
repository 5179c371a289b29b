import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Filters } from "./filters";

const navigations: { text?: string }[] = [];
vi.mock("@tanstack/react-router", () => ({ useNavigate: () => ({ search }: { search: { text?: string } }) => navigations.push(search) }));

beforeEach(() => {
  navigations.length = 0;
  vi.useFakeTimers();
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

it("keeps typed text while the address follows", async () => {
  const { rerender } = render(<Filters search={{}} errors={[]} />);
  const field = () => screen.getByLabelText<HTMLInputElement>("Text");
  const type = (value: string) => fireEvent.change(field(), { target: { value } });
  const wait = () => act(() => vi.advanceTimersByTimeAsync(400));
  type("a");
  await wait();
  type("ab");
  // The address contains the first letter so far.
  rerender(<Filters search={{ text: "a" }} errors={[]} />);
  expect(field().value).toBe("ab");
  await wait();
  expect(navigations.map((search) => search.text)).toEqual(["a", "ab"]);
  rerender(<Filters search={{ text: "ab" }} errors={[]} />);
  type("abc");
  rerender(<Filters search={{}} errors={[]} />);
  expect(field().value).toBe("");
  await wait();
  expect(navigations).toHaveLength(2);
});
