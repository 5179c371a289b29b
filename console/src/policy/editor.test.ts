import { CompletionContext } from "@codemirror/autocomplete";
import { EditorState } from "@codemirror/state";
import { describe, expect, it } from "vitest";
import { completions, docAt } from "./editor";
import type { Schema } from "./schema";

const schema: Schema = {
  properties: {
    level: { enum: ["strict", "standard"], description: "What it adds to." },
    network: {
      description: "What may be reached.",
      properties: { unlisted: { enum: ["allow", "deny"] }, hosts: { items: { properties: { tunnel: { type: "boolean", description: "Unopened." }, rules: { items: { properties: { do: { enum: ["allow"] } } } } } } } },
    },
  },
};

function at(text: string, explicit = false) {
  const pos = text.indexOf("|");
  const result = completions(schema, new CompletionContext(EditorState.create({ doc: text.replace("|", "") }), pos, explicit));
  return result && { from: result.from, labels: result.options.map((o) => o.label), apply: result.options[0]?.apply };
}

describe("completion", () => {
  it("offers fields where fields are valid, and begins their values", () => {
    expect(at("n|")).toMatchObject({ from: 0, labels: ["level", "network"], apply: "level: " });
    expect(at("network:\n  h|")).toMatchObject({ labels: ["unlisted", "hosts"] });
    expect(at("network:\n  hosts:\n    - t|")).toMatchObject({ labels: ["tunnel", "rules"], apply: "tunnel: " });
  });

  it("indents the content of a field below it", () => {
    const pos = completions(schema, new CompletionContext(EditorState.create({ doc: "n" }), 1, true));
    expect(pos?.options[1]?.apply).toBe("network:\n  ");
    const inside = completions(schema, new CompletionContext(EditorState.create({ doc: "network:\n  h" }), 12, true));
    expect(inside?.options[1]?.apply).toBe("hosts:\n    - ");
  });

  it("offers values where values are valid", () => {
    expect(at("level: s|")).toMatchObject({ from: 7, labels: ["strict", "standard"] });
    expect(at("network:\n  hosts:\n    - {tunnel: |", true)).toMatchObject({ labels: ["true", "false"] });
  });

  it("offers nothing without a request, in comments, and at unknown fields", () => {
    expect(at("level: |")).toBeNull();
    expect(at("level: |", true)).not.toBeNull();
    expect(at("# lev|", true)).toBeNull();
    expect(at("strange:\n  x|", true)).toBeNull();
  });
});

describe("the description of a word", () => {
  it("is found for fields and for their values", () => {
    const text = "level: strict\nnetwork:\n  hosts:\n    - {tunnel: true}\n";
    expect(docAt(schema, text, 2)).toMatchObject({ path: ["level"], doc: "What it adds to." });
    expect(docAt(schema, text, 9)).toMatchObject({ path: ["level"] });
    expect(docAt(schema, text, text.indexOf("tunnel") + 1)).toMatchObject({ doc: "Unopened." });
    expect(docAt(schema, text, text.indexOf("hosts") + 1)).toBeNull();
  });
});
