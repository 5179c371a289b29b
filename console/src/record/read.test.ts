import { describe, expect, it } from "vitest";
import { exportURL, notesOf } from "./read";

const note = (n: number) => `crannog/ab\n${n}\nroot${n}=\n\n— crannog/ab sig${n}\n`;

describe("signed tree heads that were pasted", () => {
  it("are split", () => {
    expect(notesOf("")).toEqual([]);
    expect(notesOf(note(1).trim())).toEqual([note(1)]);
    expect(notesOf(`\n${note(1)}\n\n${note(2)}`)).toEqual([note(1), note(2)]);
    expect(notesOf(note(1).replaceAll("\n", "\r\n"))).toEqual([note(1)]);
  });

  it("may be lines of JSON, as they are stored on disk", () => {
    expect(notesOf(`${JSON.stringify({ size: 1, note: note(1) })}\n${JSON.stringify({ note: note(2) })}`)).toEqual([note(1), note(2)]);
    expect(() => notesOf("{nope")).toThrow();
  });
});

describe("the export", () => {
  it("has the server's filter", () => {
    expect(exportURL({})).toBe("/console/api/v1/record/export");
    expect(exportURL({ sandbox: "a&b", kind: "flow,exec" })).toBe("/console/api/v1/record/export?sandbox=a%26b&kind=flow%2Cexec");
  });
});
