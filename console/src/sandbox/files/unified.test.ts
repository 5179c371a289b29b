import { describe, expect, it } from "vitest";
import { parseUnified } from "./unified";

describe("parseUnified", () => {
  it("numbers lines on both sides", () => {
    const [hunk] = parseUnified("--- a/x\n+++ b/x\n@@ -3,3 +3,4 @@ func\n same\n-old\n+new\n+more\n last\n");
    expect(hunk?.header).toContain("@@ -3,3 +3,4 @@");
    expect(hunk?.lines.map((l) => [l.kind, l.before, l.after, l.text])).toEqual([
      ["same", 3, 3, "same"],
      ["removed", 4, undefined, "old"],
      ["added", undefined, 4, "new"],
      ["added", undefined, 5, "more"],
      ["same", 5, 6, "last"],
    ]);
  });

  it("treats content that looks like a header as content", () => {
    const source = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/evil\n-@@ -9,9 +9,9 @@\n+++ b/evil\n+@@ -1 +1 @@\n@@ -9 +9 @@\n-a\n+b\n";
    const hunks = parseUnified(source);
    expect(hunks).toHaveLength(2);
    expect(hunks[0]?.lines.map((l) => l.kind + ":" + l.text)).toEqual([
      "removed:-- a/evil", "removed:@@ -9,9 +9,9 @@", "added:++ b/evil", "added:@@ -1 +1 @@",
    ]);
    expect(hunks[1]?.lines.map((l) => l.kind)).toEqual(["removed", "added"]);
  });

  it("keeps the note about a missing end of line, and returns nothing for other text", () => {
    expect(parseUnified("@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n")[0]?.lines.map((l) => l.kind)).toEqual(["added", "note"]);
    for (const malformed of ["", "x", "@@ -a +b @@\n+x", "@@ -1,99999999 +1 @@\n+x"]) expect(() => parseUnified(malformed)).not.toThrow();
  });
});
