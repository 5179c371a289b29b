import { describe, expect, it } from "vitest";
import { bySeverity, fixOf, headline, type Finding } from "./findings";

const f = (check: string, result: string): Finding => ({ check, result: result as Finding["result"], detail: "" });

describe("findings", () => {
  it("begin with what is wrong, and take the unknown for wrong", () => {
    const all = bySeverity([f("a", "ok"), f("b", "warn"), f("c", "fail"), f("d", "strange")]);
    expect(all.map((x) => x.check + x.result)).toEqual(["cfail", "dfail", "bwarn", "aok"]);
  });

  it("have a headline", () => {
    expect(headline([f("a", "ok")])).toBe("All is well.");
    expect(headline([f("a", "warn"), f("b", "ok")])).toBe("1 thing could be better.");
    expect(headline([f("a", "fail"), f("b", "warn")])).toBe("1 check fails: sandboxes may not run.");
  });

  it("tell a command from a sentence", () => {
    expect(fixOf("sysctl -w kernel.x=1").command).toBe("sysctl -w kernel.x=1");
    expect(fixOf("Use a newer kernel").command).toBeUndefined();
  });
});
