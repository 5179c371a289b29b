import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { TerminalClient, type Attachment, type Socket } from "./client";

class Wire implements Socket {
  binaryType: BinaryType = "blob";
  readyState = 1;
  sent: (string | Uint8Array)[] = [];
  onopen = null;
  onmessage: ((event: MessageEvent) => unknown) | null = null;
  onclose: ((event: CloseEvent) => unknown) | null = null;
  send(data: string | Uint8Array<ArrayBuffer>) {
    this.sent.push(data);
  }
  close() {
    this.readyState = 3;
  }
  say(frame: unknown) {
    this.onmessage?.(new MessageEvent("message", { data: typeof frame === "string" ? frame : JSON.stringify(frame) }));
  }
  bytes(...codes: number[]) {
    this.onmessage?.(new MessageEvent("message", { data: new Uint8Array(codes).buffer }));
  }
  drop() {
    this.readyState = 3;
    this.onclose?.(new CloseEvent("close"));
  }
}

const ready = { type: "ready", pid: 4, cols: 100, rows: 30, controller: null, mine: false, scope: "operator" };

describe("TerminalClient", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const make = () => {
    const wires: Wire[] = [];
    const seen: number[] = [];
    let anew = 0;
    const states: Attachment[] = [];
    const client = new TerminalClient({
      open: () => {
        const wire = new Wire();
        wires.push(wire);
        return wire;
      },
      bytes: (data) => seen.push(...data),
      anew: () => anew++,
      changed: (state) => states.push(state),
    });
    return { client, wires, wire: () => wires.at(-1)!, seen, anew: () => anew, states };
  };

  it("reads only, until control was given", () => {
    const { client, wire, seen } = make();
    wire().say(ready);
    wire().bytes(104, 105);
    expect(seen).toEqual([104, 105]);
    expect(client.state).toMatchObject({ phase: "attached", cols: 100, rows: 30, mine: false });
    expect(client.input("rm -rf /\r")).toBe(false);
    client.resize(10, 10);
    expect(wire().sent).toEqual([]);
    client.take();
    expect(wire().sent).toEqual(['{"type":"take"}']);
    // A request for control does not give control.
    expect(client.input("x")).toBe(false);
    wire().say({ type: "control", controller: "anna", mine: true });
    expect(client.input("ls\r")).toBe(true);
    expect(new TextDecoder().decode(wire().sent[1] as Uint8Array)).toBe("ls\r");
    client.resize(120, 40);
    expect(wire().sent[2]).toBe('{"type":"resize","cols":120,"rows":40}');
    wire().say({ type: "control", controller: "bob", mine: false });
    expect(client.input("y")).toBe(false);
    expect(client.state.controller).toBe("bob");
  });

  it("comes back after a break, without control", () => {
    const { client, wires, wire, anew } = make();
    wire().say({ ...ready, controller: "anna", mine: true });
    wire().drop();
    expect(client.state).toMatchObject({ phase: "lost", mine: false, controller: null });
    vi.advanceTimersByTime(600);
    expect(wires).toHaveLength(2);
    wires[0]!.say({ type: "control", controller: "x", mine: true });
    expect(client.state.mine).toBe(false);
    wire().say(ready);
    expect(anew()).toBe(2);
    expect(client.input("x")).toBe(false);
  });

  it("gives up in the end, and does not come back once it was closed", () => {
    const { client, wires, wire } = make();
    for (let i = 0; i < 20; i++) {
      wire().drop();
      vi.advanceTimersByTime(60_000);
    }
    expect(wires).toHaveLength(7);
    expect(client.state.phase).toBe("refused");
    const other = make();
    other.client.close();
    other.wire().drop();
    vi.advanceTimersByTime(60_000);
    expect(other.wires).toHaveLength(1);
  });

  it("ends with the program, and stays ended", () => {
    const { client, wires, wire } = make();
    wire().say(ready);
    wire().say({ type: "exit", exit_code: 3 });
    wire().drop();
    vi.advanceTimersByTime(60_000);
    expect(client.state).toMatchObject({ phase: "ended", exit: 3 });
    expect(wires).toHaveLength(1);
  });

  it("reports what was refused", () => {
    const { client, wire } = make();
    wire().say(ready);
    wire().say({ type: "error", code: "no_control", text: "Somebody else types." });
    expect(client.state).toMatchObject({ phase: "attached", problem: "Somebody else types." });
    const other = make();
    other.wire().say({ type: "error", code: "terminal_not_found", text: "There is none." });
    expect(other.client.state).toMatchObject({ phase: "refused", problem: "There is none." });
  });

  it("ignores frames that it does not know", () => {
    const { client, wire } = make();
    wire().say(ready);
    for (const odd of ["", "{", "null", "7", '{"type":"size","cols":1e9,"rows":1}', '{"type":"size"}', '{"type":"later"}', '{"type":"control","controller":7,"mine":"yes"}']) {
      wire().say(odd);
    }
    expect(client.state).toMatchObject({ phase: "attached", cols: 100, rows: 30, controller: null, mine: false });
  });

  it("cuts a long paste into pieces", () => {
    const { client, wire } = make();
    wire().say({ ...ready, mine: true });
    client.input("ä".repeat(20_000));
    const sent = wire().sent as Uint8Array[];
    expect(sent.length).toBe(3);
    expect(sent.reduce((n, one) => n + one.length, 0)).toBe(40_000);
  });
});
