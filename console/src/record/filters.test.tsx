import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Filters } from "./filters";

const went: { text?: string }[] = [];
vi.mock("@tanstack/react-router", () => ({ useNavigate: () => ({ search }: { search: { text?: string } }) => went.push(search) }));

beforeEach(() => {
  went.length = 0;
  vi.useFakeTimers();
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

it("keeps typed text while the address follows", async () => {
  const { rerender } = render(<Filters search={{}} wrong={[]} />);
  const field = () => screen.getByLabelText<HTMLInputElement>("Text");
  const type = (value: string) => fireEvent.change(field(), { target: { value } });
  const wait = () => act(() => vi.advanceTimersByTimeAsync(400));
  type("a");
  await wait();
  type("ab");
  // The address contains the first letter so far.
  rerender(<Filters search={{ text: "a" }} wrong={[]} />);
  expect(field().value).toBe("ab");
  await wait();
  expect(went.map((search) => search.text)).toEqual(["a", "ab"]);
  rerender(<Filters search={{ text: "ab" }} wrong={[]} />);
  type("abc");
  rerender(<Filters search={{}} wrong={[]} />);
  expect(field().value).toBe("");
  await wait();
  expect(went).toHaveLength(2);
});
