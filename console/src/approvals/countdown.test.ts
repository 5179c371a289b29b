import { describe, expect, it } from "vitest";
import { leftOf } from "./countdown";

const now = Date.parse("2030-01-01T00:00:00Z");
const inMS = (ms: number) => leftOf(new Date(now + ms).toISOString(), now);

describe("leftOf", () => {
  it.each([
    [3 * 3600_000, "3 h left", "calm"],
    [29 * 60_000 + 59_000, "29 min left", "calm"],
    [10 * 60_000, "10:00 left", "calm"],
    [4 * 60_000 + 3_000, "4:03 left", "soon"],
    [59_500, "1:00 left", "now"],
    [1, "0:01 left", "now"],
    [0, "expired", "over"],
    [-5, "expired", "over"],
  ])("%i ms", (ms, text, urgency) => expect(inMS(ms)).toEqual({ text, urgency }));

  it("treats a malformed time as expired", () => {
    expect(leftOf("soon", now).urgency).toBe("over");
  });
});
