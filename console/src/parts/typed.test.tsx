import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { useTyped } from "./typed";

afterEach(cleanup);

it("keeps typed text while the address follows, and accepts other changes of it", () => {
  const reported: string[] = [];
  const { result, rerender } = renderHook(({ address }) => useTyped(address, (text) => reported.push(text)), { initialProps: { address: "" } });
  const text = () => result.current[0];
  for (const typed of ["b", "bo", "box"]) {
    act(() => result.current[1](typed));
    expect(text()).toBe(typed);
  }
  expect(reported).toEqual(["b", "bo", "box"]);
  // The URL changes late, and not with every letter.
  for (const address of ["b", "box"]) {
    rerender({ address });
    expect(text()).toBe("box");
  }
  act(() => result.current[1]("bo"));
  rerender({ address: "bo" });
  rerender({ address: "box" });
  expect(text()).toBe("box");
  rerender({ address: "" });
  expect(text()).toBe("");
});
