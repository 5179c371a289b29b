import { describe, expect, it } from "vitest";
import { inert, inertLine } from "./inert";

describe("inert", () => {
  it.each([
    ["colours", "\x1b[31mred\x1b[0m", "red"],
    ["an erased line", "rm -rf /\x1b[2K\x1b[1Gls", "rm -rf /ls"],
    ["an 8-bit sequence", "a\x9b2Jb", "ab"],
    ["a link, OSC 8", "\x1b]8;;http://evil\x1b\\bank\x1b]8;;\x1b\\", "bank"],
    ["the clipboard, OSC 52", "x\x1b]52;c;ZXZpbA==\x07y", "xy"],
    ["an 8-bit OSC", "x\x9d52;c;ZXZpbA==\x9cy", "xy"],
    ["a title", "\x1b]0;root@host\x07$", "$"],
    ["a device control string", "a\x1bP1$r\x1b\\b", "ab"],
    ["a string that never ends", "a\x1b]52;c;b", "a52;c;b"],
    ["bell, backspace, delete", "a\x07b\x08c\x7f", "abc"],
    ["C1", "a\x85b\x84c", "a\nbc"],
    ["a lone carriage return", "safe\revil", "safe\nevil"],
    ["bidi overrides", "user\u202etxt.exe\u202c", "usertxt.exe"],
    ["bidi isolates", "a\u2066b\u2069\u200f\u061c", "ab"],
    ["zero width", "pay\u200bpal\u200d.\ufeffcom\u2060", "paypal.com"],
    ["a soft hyphen", "git\u00adhub", "github"],
    ["Unicode tag characters", "a\u{e0041}\u{e007f}b", "ab"],
    ["line separators", "a\u2028b", "a\nb"],
    ["a lone surrogate", "a\ud800b", "a\ufffdb"],
    ["a pile of accents", `e${"\u0301".repeat(40)}x`, `e${"\u0301".repeat(3)}x`],
  ])("makes %s harmless and reports a change", (_what, dirty, clean) => {
    expect(inert(dirty)).toEqual({ text: clean, changed: true });
  });

  it.each(["", "plain text", "two\nlines\tand a tab", "Grüße, 你好, שלום", "naïve e\u0301", "🙂"])("does not change %j", (text) => {
    expect(inert(text)).toEqual({ text, changed: false });
  });

  it("converts a Windows line ending without reporting a change", () => {
    expect(inert("a\r\nb\u00e9")).toEqual({ text: "a\nb\u00e9", changed: false });
  });

  it("removes everything in one pass", () => {
    for (const dirty of ["\x1b\x1b[31m[31mx", "\x1b[\x1b[0m31mx", "\x9b\x9b1mx", "\x1b]\x1b]0;a\x07x"]) {
      const once = inert(dirty).text;
      expect(inert(once)).toEqual({ text: once, changed: false });
    }
  });

  it("takes time proportional to the length", () => {
    // A function with quadratic cost does not end within the time of a test.
    inert("\x1b]".repeat(200_000));
    inert("\x9d".repeat(200_000));
    inert("\x1b[".repeat(200_000));
  });
});

describe("inertLine", () => {
  it("replaces line breaks and tabs with spaces", () => {
    expect(inertLine("a\nb\tc")).toEqual({ text: "a b c", changed: true });
    expect(inertLine("a b")).toEqual({ text: "a b", changed: false });
  });
});
