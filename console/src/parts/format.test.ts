import { describe, expect, it } from "vitest";
import { bytes, cores, countdown, duration, localTime, relative, utc } from "./format";

describe("format", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1000, "0.98 KiB"],
    [1536, "1.50 KiB"],
    [10 * 1024, "10.0 KiB"],
    [512 * 2 ** 20, "512 MiB"],
    [2 ** 30, "1.00 GiB"],
    [-1, "–"],
    [Number.NaN, "–"],
  ])("writes %d bytes as %s", (n, text) => expect(bytes(n)).toBe(text));

  it.each([
    [0, "0 ms"],
    [0.4, "<1 ms"],
    [999, "999 ms"],
    [999.7, "1.0 s"],
    [9_960, "10 s"],
    [59_999, "1 min"],
    [61_000, "1 min 1 s"],
    [3_600_000, "1 h"],
    [5_400_000, "1 h 30 min"],
    [90_000_000, "1 d 1 h"],
    [Number.POSITIVE_INFINITY, "–"],
  ])("writes %d ms as %s", (n, text) => expect(duration(n)).toBe(text));

  it.each([
    [0, "now"],
    [30_000, "30 s ago"],
    [-120_000, "in 2 min"],
    [7_200_000, "2 h ago"],
    [3 * 86_400_000, "3 d ago"],
  ])("writes %d ms since as %s", (since, text) => expect(relative(1e12, 1e12 + since)).toBe(text));

  it("counts down to zero and no further", () => {
    expect([3_600_000, 245_000, 4_100, 0, -5].map(countdown)).toEqual(["1:00:00", "4:05", "0:05", "0:00", "0:00"]);
  });

  it("writes a fraction of one core", () => {
    expect([0, 0.004, 0.5, 1.5].map(cores)).toEqual(["0 %", "0.4 %", "50 %", "150 %"]);
  });

  it("shows the date only for another day", () => {
    const at = new Date(2026, 3, 5, 14, 3, 2);
    expect(localTime(at, at)).not.toContain("2026");
    expect(localTime(at, new Date(2026, 3, 6))).toContain("2026");
    expect(localTime(new Date("no"))).toBe("–");
  });

  it("shows UTC on hover", () => {
    expect(utc(new Date(Date.UTC(2026, 0, 2, 3, 4, 5)))).toBe("2026-01-02 03:04:05 UTC");
  });
});
