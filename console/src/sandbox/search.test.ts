import { expect, it } from "vitest";
import { sandboxSearch } from "./search";

it("parses filters, and drops unknown ones", () => {
  expect(sandboxSearch({ show: "files,evil,network", programs: true, terminal: 12, verdict: "denied", host: "pypi.org", port: 8080, since: 7 })).toEqual({
    show: "files,network", programs: true, terminal: 12, verdict: "denied", host: "pypi.org", port: 8080, since: "7",
  });
  expect(sandboxSearch({ show: "x", programs: "yes", terminal: -1, replay: 1.5, verdict: "maybe", view: "x", order: "name", path: "", port: "http://x", __proto__: { kind: "x" } })).toEqual({});
});
