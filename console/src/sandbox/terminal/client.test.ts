import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { TerminalClient, type Attachment, type Socket } from "./client";

class FakeSocket implements Socket {
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
  receive(frame: unknown) {
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
    const sockets: FakeSocket[] = [];
    const seen: number[] = [];
    let onScreenReset = 0;
    const states: Attachment[] = [];
    const client = new TerminalClient({
      open: () => {
        const socket = new FakeSocket();
        sockets.push(socket);
        return socket;
      },
      onOutput: (data) => seen.push(...data),
      onScreenReset: () => onScreenReset++,
      onChange: (state) => states.push(state),
    });
    return { client, sockets, socket: () => sockets.at(-1)!, seen, onScreenReset: () => onScreenReset, states };
  };

  it("is read-only until it gets control", () => {
    const { client, socket, seen } = make();
    socket().receive(ready);
    socket().bytes(104, 105);
    expect(seen).toEqual([104, 105]);
    expect(client.state).toMatchObject({ phase: "attached", cols: 100, rows: 30, mine: false });
    expect(client.input("rm -rf /\r")).toBe(false);
    client.resize(10, 10);
    expect(socket().sent).toEqual([]);
    client.take();
    expect(socket().sent).toEqual(['{"type":"take"}']);
    // A request for control does not give control.
    expect(client.input("x")).toBe(false);
    socket().receive({ type: "control", controller: "anna", mine: true });
    expect(client.input("ls\r")).toBe(true);
    expect(new TextDecoder().decode(socket().sent[1] as Uint8Array)).toBe("ls\r");
    client.resize(120, 40);
    expect(socket().sent[2]).toBe('{"type":"resize","cols":120,"rows":40}');
    socket().receive({ type: "control", controller: "bob", mine: false });
    expect(client.input("y")).toBe(false);
    expect(client.state.controller).toBe("bob");
  });

  it("reconnects after a lost connection, without control", () => {
    const { client, sockets, socket, onScreenReset } = make();
    socket().receive({ ...ready, controller: "anna", mine: true });
    socket().drop();
    expect(client.state).toMatchObject({ phase: "lost", mine: false, controller: null });
    vi.advanceTimersByTime(600);
    expect(sockets).toHaveLength(2);
    sockets[0]!.receive({ type: "control", controller: "x", mine: true });
    expect(client.state.mine).toBe(false);
    socket().receive(ready);
    expect(onScreenReset()).toBe(2);
    expect(client.input("x")).toBe(false);
  });

  it("stops after the last attempt, and does not reconnect once it is closed", () => {
    const { client, sockets, socket } = make();
    for (let i = 0; i < 20; i++) {
      socket().drop();
      vi.advanceTimersByTime(60_000);
    }
    expect(sockets).toHaveLength(7);
    expect(client.state.phase).toBe("refused");
    const other = make();
    other.client.close();
    other.socket().drop();
    vi.advanceTimersByTime(60_000);
    expect(other.sockets).toHaveLength(1);
  });

  it("ends with the program, and stays ended", () => {
    const { client, sockets, socket } = make();
    socket().receive(ready);
    socket().receive({ type: "exit", exit_code: 3 });
    socket().drop();
    vi.advanceTimersByTime(60_000);
    expect(client.state).toMatchObject({ phase: "ended", exit: 3 });
    expect(sockets).toHaveLength(1);
  });

  it("reports a refusal", () => {
    const { client, socket } = make();
    socket().receive(ready);
    socket().receive({ type: "error", code: "no_control", text: "Somebody else types." });
    expect(client.state).toMatchObject({ phase: "attached", problem: "Somebody else types." });
    const other = make();
    other.socket().receive({ type: "error", code: "terminal_not_found", text: "There is none." });
    expect(other.client.state).toMatchObject({ phase: "refused", problem: "There is none." });
  });

  it("ignores frames that it does not know", () => {
    const { client, socket } = make();
    socket().receive(ready);
    for (const unknownFrame of ["", "{", "null", "7", '{"type":"size","cols":1e9,"rows":1}', '{"type":"size"}', '{"type":"later"}', '{"type":"control","controller":7,"mine":"yes"}']) {
      socket().receive(unknownFrame);
    }
    expect(client.state).toMatchObject({ phase: "attached", cols: 100, rows: 30, controller: null, mine: false });
  });

  it("splits a long paste into pieces", () => {
    const { client, socket } = make();
    socket().receive({ ...ready, mine: true });
    client.input("ä".repeat(20_000));
    const sent = socket().sent as Uint8Array[];
    expect(sent.length).toBe(3);
    expect(sent.reduce((n, one) => n + one.length, 0)).toBe(40_000);
  });
});
