import { describe, expect, it } from "vitest";
import { bySeverity, fixOf, headline, type Finding } from "./findings";

const f = (check: string, result: string): Finding => ({ check, result: result as Finding["result"], detail: "" });

describe("findings", () => {
  it("are sorted failures first, and an unknown result counts as a failure", () => {
    const all = bySeverity([f("a", "ok"), f("b", "warn"), f("c", "fail"), f("d", "strange")]);
    expect(all.map((x) => x.check + x.result)).toEqual(["cfail", "dfail", "bwarn", "aok"]);
  });

  it("are summarized in a headline", () => {
    expect(headline([f("a", "ok")])).toBe("All checks pass.");
    expect(headline([f("a", "warn"), f("b", "ok")])).toBe("1 check has a warning.");
    expect(headline([f("a", "fail"), f("b", "warn")])).toBe("1 check fails: sandboxes may not run.");
  });

  it("show whether a fix is a command or a sentence", () => {
    expect(fixOf("sysctl -w kernel.x=1").command).toBe("sysctl -w kernel.x=1");
    expect(fixOf("Use a newer kernel").command).toBeUndefined();
  });
});
