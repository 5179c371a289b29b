import { describe, expect, it } from "vitest";
import { addEvent, framed, maxText, startRun, viewsOf, type CellEvent, type CellRun } from "./cells";
import { bodyOf, bytesOf, emptyForm, fieldFor, secondsOf } from "./form";
import { LineReader, readLines } from "./ndjson";

const run = (...events: CellEvent[]): CellRun => events.reduce(addEvent, startRun);

describe("a cell's output", () => {
  it("is assembled as it arrives", () => {
    const r = run(
      { type: "stdout", text: "a" },
      { type: "stdout", text: "b\n" },
      { type: "stderr", text: "w" },
      { type: "result", main: true, data: { "text/plain": "42" } },
      { type: "end", duration_ms: 12, execution_count: 3 },
    );
    expect(r.outputs).toEqual([
      { kind: "stdout", text: "ab\n" },
      { kind: "stderr", text: "w" },
      { kind: "result", main: true, data: { "text/plain": "42" } },
    ]);
    expect(r).toMatchObject({ state: "done", durationMS: 12, count: 3, dropped: 0 });
  });

  it("stays failed after an error", () => {
    const r = run({ type: "error", name: "E", value: "v", traceback: ["x", "y"] }, { type: "end" });
    expect(r.state).toBe("failed");
    expect(r.outputs[0]).toMatchObject({ traceback: "x\ny" });
  });

  it("shows a missing end", () => {
    expect(run({ type: "end", lost: true }).state).toBe("lost");
  });

  it("is limited, and reports how much was dropped", () => {
    const r = run({ type: "stdout", text: "x".repeat(maxText) }, { type: "stderr", text: "yy" }, { type: "stdout", text: "zzz" });
    expect(r.dropped).toBe(5);
    expect(r.outputs.map((o) => ("text" in o ? o.text.length : 0)).reduce((a, b) => a + b)).toBe(maxText);
    expect(r.outputs.at(-1)).toEqual({ kind: "stdout", text: "zzz" });
    const many = run(...Array.from({ length: 200 }, (): CellEvent => ({ type: "result", data: {} })));
    expect(many.outputs).toHaveLength(64);
    const turns = run({ type: "result", data: {} }, ...Array.from({ length: 3000 }, (_, i): CellEvent => ({ type: i % 2 === 0 ? "stdout" : "stderr", text: "ab" })));
    expect([turns.outputs.length, turns.outputs[0]?.kind, turns.dropped]).toEqual([1000, "result", 2 * 2001]);
  });

  it("accepts malformed events", () => {
    const malformed = [{ type: "result", data: null }, { type: "error" }, { type: "stdout" }, { type: "new" }] as unknown as CellEvent[];
    expect(() => run(...malformed)).not.toThrow();
  });
});

describe("views of a result", () => {
  it("show images from data only", () => {
    expect(viewsOf({ "image/png": "iVBO\nRw==" })).toEqual([{ as: "image", src: "data:image/png;base64,iVBORw==", alt: "Chart" }]);
    expect(viewsOf({ "image/png": '" onerror="x' })[0]?.as).toBe("text");
  });

  it("show SVG as an image, in which no code runs", () => {
    const [v] = viewsOf({ "image/svg+xml": "<svg onload='x'><script>1</script></svg>" });
    expect(v).toMatchObject({ as: "image", src: expect.stringMatching(/^data:image\/svg\+xml;charset=utf-8,%3Csvg/) });
  });

  it("put HTML into a frame without permissions", () => {
    const [v, text] = viewsOf({ "text/html": "<table></table>", "text/plain": "t" });
    expect(v?.as === "frame" && v.html.indexOf("default-src 'none'") < v.html.indexOf("<table>")).toBe(true);
    expect(text).toEqual({ as: "text", text: "t" });
    expect(framed("x")).not.toContain("script-src");
  });

  it("show a chart's numbers as a table", () => {
    const chart = { type: "line", x_label: "day", y_label: "sum", elements: [{ label: "a", points: [[1, 2], [3, 4]] }] };
    expect(viewsOf({ "application/vnd.e2b.chart.v1+json": chart })[0]).toEqual({
      as: "table",
      columns: ["Label", "day", "sum"],
      rows: [["a", "1", "2"], ["a", "3", "4"]],
    });
    const pie = JSON.stringify({ elements: [{ label: "a", angle: 90 }] });
    expect(viewsOf({ chart: pie })[0]).toEqual({ as: "table", columns: ["label", "angle"], rows: [["a", "90"]] });
    for (const bad of [null, 1, "{", {}, { elements: [] }, { elements: [null] }]) expect(() => viewsOf({ chart: bad })).not.toThrow();
  });

  it("show a data frame as a table", () => {
    expect(viewsOf({ "application/vnd.crannog.data+json": { a: [1, 2], b: ["x"] } })[0]).toEqual({
      as: "table",
      columns: ["a", "b"],
      rows: [["1", "x"], ["2", ""]],
    });
    for (const bad of [[], {}, 1, "x", { a: 1 }]) expect(viewsOf({ "application/vnd.crannog.data+json": bad })[0]?.as).toBe("text");
  });

  it("always have something to show", () => {
    expect(viewsOf({})).toEqual([{ as: "text", text: "nothing" }]);
    expect(viewsOf({ "application/x-strange": "1" })).toEqual([{ as: "text", text: "application/x-strange" }]);
  });
});

describe("lines of JSON", () => {
  const bytes = (s: string) => new TextEncoder().encode(s);

  it("are joined from pieces that may end anywhere, also inside a character", () => {
    const all = bytes('{"a":"ä€"}\n\n{"b":2}');
    for (let cut = 0; cut <= all.length; cut++) {
      const r = new LineReader();
      expect([...r.push(all.slice(0, cut)), ...r.push(all.slice(cut)), ...r.end()]).toEqual([{ a: "ä€" }, { b: 2 }]);
    }
  });

  it("are an error if they are not JSON", async () => {
    const body = new Response("{}\nnope\n").body;
    await expect(readLines(body as ReadableStream<Uint8Array>, () => undefined)).rejects.toThrow();
  });
});

describe("the form", () => {
  it("parses sizes and times, and rejects a number without a unit as a time", () => {
    expect(bytesOf("512M")).toBe(512 * 1024 * 1024);
    expect(bytesOf("1.5 GiB")).toBe(1.5 * 1024 ** 3);
    expect(bytesOf("many")).toBeNull();
    expect(bytesOf("0")).toBeNull();
    expect(secondsOf("1h30m")).toBe(5400);
    expect(secondsOf("90")).toBeNull();
    expect(secondsOf("0s")).toBeNull();
  });

  it("leaves out empty fields", () => {
    expect(bodyOf({ ...emptyForm, net: "" })).toEqual({ body: {}, errors: {} });
  });

  it("becomes a request", () => {
    const f = { ...emptyForm, name: " web ", net: "policy", level: "strict", allow: "a.com\nb.com:8443", memory: "1G", cpu: "0.5", timeout: "1h", metadata: "team=pay\nx = a=b" };
    expect(bodyOf(f)).toEqual({
      errors: {},
      body: {
        name: "web",
        timeout_seconds: 3600,
        limits: { memory_bytes: 1024 ** 3, cpu_millis: 500 },
        access: { level: "strict", net: "policy", allow: ["a.com", "b.com:8443"] },
        metadata: { team: "pay", x: "a=b" },
      },
    });
  });

  it("shows an error at the field, and sends no default instead", () => {
    const f = { ...emptyForm, memory: "lots", cpu: "-1", pids: "1.5", disk: "?", timeout: "5", allow: "https://a.com/", metadata: "team" };
    expect(Object.keys(bodyOf({ ...f, net: "dev" }).errors).toSorted()).toEqual(["allow", "cpu", "disk", "memory", "metadata", "pids", "timeout"]);
    expect(bodyOf({ ...emptyForm, allow: "a.com" }).errors.allow).toContain("need a network");
  });

  it("shows the server's problems at their fields", () => {
    expect(fieldFor({ code: "name_taken", text: "" })).toBe("name");
    expect(fieldFor({ code: "template_not_found", text: "" })).toBe("template");
    expect(fieldFor({ code: "policy_invalid", text: "line 3: network.unlisted" })).toBe("policy");
    expect(fieldFor({ code: "invalid_request", text: "validation failed: body.limits.memory_bytes expected number" })).toBe("memory");
    expect(fieldFor({ code: "invalid_request", text: "body.access.allow[0] is wrong" })).toBe("allow");
    expect(fieldFor({ code: "engine_unavailable", text: "no engine" })).toBeNull();
  });
});
