import { describe, expect, it } from "vitest";
import { asURL, headline, rangesOf } from "./lint";
import { at, fieldsAt, valuesAt, type Schema } from "./schema";
import { positionAt } from "./yamlpath";

/** position returns the position that "|" marks. */
function position(text: string) {
  const offset = text.indexOf("|");
  const p = positionAt(text.replace("|", ""), offset);
  return p && { path: p.path.join("."), at: p.at, typed: p.typed, before: text.slice(0, p.from) };
}

describe("positions in YAML", () => {
  it.each([
    ["|", "", "key", ""],
    ["pol|", "", "key", "pol"],
    ["level: st|", "level", "value", "st"],
    ["level: |", "level", "value", ""],
    ["network:\n  |", "network", "key", ""],
    ["network:\n  unl|", "network", "key", "unl"],
    ["network:\n  unlisted: a|", "network.unlisted", "value", "a"],
    ["network:\n  hosts:\n    - |", "network.hosts.[]", "key", ""],
    ["network:\n  hosts:\n    - host: a.com\n      |", "network.hosts.[]", "key", ""],
    ["network:\n  hosts:\n    - host: a.com\n      rules:\n        - id: x\n          do: al|", "network.hosts.[].rules.[].do", "value", "al"],
    ["network:\n  hosts:\n  - host: a.com\n    po|", "network.hosts.[]", "key", "po"],
    ["network:\n  hosts:\n    - host: a.com\ngit:\n  pu|", "git", "key", "pu"],
    ["network:\n  hosts:\n    - host: a.com\n|", "", "key", ""],
    ["rules:\n  - {id: read, do: a|", "rules.[].do", "value", "a"],
    ["rules:\n  - {id: read, d|", "rules.[]", "key", "d"],
    ["rules:\n  - {id: read, methods: [GET, H|", "rules.[].methods.[]", "value", "H"],
    ["rules:\n  - {id: read, methods: [GET], li|", "rules.[]", "key", "li"],
    ["filesystem:\n  protect: [\"**/a\", |", "filesystem.protect.[]", "value", ""],
    ["# a: b\nnetwork:\n  # more\n\n  wr|", "network", "key", "wr"],
  ])("%j", (text, path, kind, typed) => {
    expect(position(text)).toMatchObject({ path, at: kind, typed });
  });

  it("do not exist in comments", () => {
    expect(position("level: strict # |")).toBeNull();
    expect(position("# |")).toBeNull();
    expect(position('host: "a#b|')).not.toBeNull();
  });

  it("begin at the start of the word", () => {
    expect(position("level: st|")?.before).toBe("level: ");
    expect(position("rules:\n  - {id: read, do: al|")?.before).toBe("rules:\n  - {id: read, do: ");
  });

  it("exist or are null at every offset, without an exception", () => {
    const text = "a: [{b: c}, d]\n- - x: {\n   y: 'z\n\t?? : ]}\n--- \n- ";
    for (let i = 0; i <= text.length; i++) expect(() => positionAt(text, i)).not.toThrow();
  });
});

const schema: Schema = {
  $ref: "#/$defs/Document",
  $defs: {
    Document: {
      properties: {
        level: { type: "string", enum: ["strict", "standard"], description: "What it adds to." },
        network: { $ref: "#/$defs/Network", description: "What may be reached." },
        loop: { $ref: "#/$defs/Loop" },
        lost: { $ref: "#/$defs/Nowhere" },
      },
    },
    Network: { description: "hidden", properties: { hosts: { items: { $ref: "#/$defs/Host" } }, unlisted: { anyOf: [{ const: "ask" }, { enum: ["deny"] }] } } },
    Host: { properties: { tunnel: { type: "boolean" }, methods: { type: "array", items: { enum: ["GET", "POST"] } } } },
    Loop: { $ref: "#/$defs/Loop" },
  },
};

describe("schema", () => {
  it("returns the fields at a path, with their descriptions", () => {
    expect(fieldsAt(schema, []).map((f) => f.name)).toEqual(["level", "network", "loop", "lost"]);
    expect(fieldsAt(schema, [])[1]).toEqual({ name: "network", doc: "What may be reached.", shape: "fields" });
    expect(fieldsAt(schema, ["network"])[0]?.shape).toBe("list");
    expect(fieldsAt(schema, ["network", "hosts", "[]"]).map((f) => f.name)).toEqual(["tunnel", "methods"]);
  });

  it("returns the values of a field", () => {
    expect(valuesAt(schema, ["level"])).toEqual(["strict", "standard"]);
    expect(valuesAt(schema, ["network", "unlisted"])).toEqual(["ask", "deny"]);
    expect(valuesAt(schema, ["network", "hosts", "[]", "tunnel"])).toEqual(["true", "false"]);
    expect(valuesAt(schema, ["network", "hosts", "[]", "methods"])).toEqual(["GET", "POST"]);
    expect(valuesAt(schema, ["network", "hosts", "[]", "methods", "[]"])).toEqual(["GET", "POST"]);
  });

  it("accepts missing targets and cycles", () => {
    expect(at(schema, ["nothing", "[]"])).toBeNull();
    expect(fieldsAt(schema, ["loop"])).toEqual([]);
    expect(fieldsAt(schema, ["lost"])).toEqual([]);
    expect(valuesAt({}, ["x"])).toEqual([]);
  });
});

describe("findings", () => {
  const text = "policy: v1\nnetwork:\n  unlisted: maybe\n";

  it("are placed at their lines", () => {
    const [r] = rangesOf(text, [{ line: 3, path: "network.unlisted", text: "must be allow, ask or deny", severity: "error" }]);
    expect(text.slice(r?.from, r?.to)).toBe("unlisted: maybe");
    expect(r?.text).toBe("network.unlisted: must be allow, ask or deny");
  });

  it("are placed at their columns", () => {
    const [r] = rangesOf(text, [{ line: 3, column: 13, text: "x", severity: "warning" }]);
    expect(text.slice(r?.from, r?.to)).toBe("maybe");
    expect(r?.severity).toBe("warning");
  });

  it("stay inside a text that has become shorter", () => {
    for (const line of [-3, 0, 1, 2, 99]) {
      for (const column of [-1, 0, 1, 500]) {
        for (const short of ["", "a", "a\n"]) {
          const [r] = rangesOf(short, [{ line, column, text: "x", severity: "new" }]);
          expect(r && r.from >= 0 && r.from <= r.to && r.to <= short.length).toBe(true);
          expect(r?.severity).toBe("error");
        }
      }
    }
  });

  it("are summarized in a headline", () => {
    const p = (severity: string) => ({ line: 1, text: "", severity });
    expect(headline([])).toBe("No problems");
    expect(headline([p("warning")])).toBe("1 warning; it can be applied");
    expect(headline([p("error"), p("error"), p("warning")])).toBe("2 errors and 1 warning; it cannot be applied");
  });
});

describe("URLs", () => {
  it("are used as they are written", () => {
    expect(asURL(" https://a.com/%2e%2e/x ")).toEqual({ url: "https://a.com/%2e%2e/x" });
    expect(asURL("a.com:8443/x")).toEqual({ url: "https://a.com:8443/x" });
    expect(asURL("ftp://a.com")).toHaveProperty("wrong");
    expect(asURL("")).toHaveProperty("wrong");
    expect(asURL("http://")).toHaveProperty("wrong");
  });
});
