import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { parseCast, shortened } from "./cast";
import { Player, type PlayerState, type Screen } from "./player";

const source = [
  JSON.stringify({ version: 3, term: { cols: 20, rows: 5 }, timestamp: 1_700_000_000, command: "make" }),
  "# a comment",
  JSON.stringify([1, "o", "one\r\n"]),
  JSON.stringify([0.5, "i", "secret"]),
  JSON.stringify([0.5, "o", "two\r\n"]),
  JSON.stringify([1, "r", "100x30"]),
  JSON.stringify([7, "o", "three"]),
  JSON.stringify([0, "x", "2"]),
  "",
].join("\n");

class FakeScreen implements Screen {
  text = "";
  size = "";
  reset(cols: number, rows: number) {
    this.text = "";
    this.size = `${cols}x${rows}`;
  }
  write(text: string) {
    this.text += text;
  }
  resize(cols: number, rows: number) {
    this.size = `${cols}x${rows}`;
  }
}

describe("parseCast", () => {
  it("reads version 3, in which times are since the event before", () => {
    const cast = parseCast(source);
    expect(cast).toMatchObject({ cols: 20, rows: 5, command: "make", startedAt: 1_700_000_000_000, duration: 10, cut: false });
    expect(cast.events.map((e) => [e.at, e.code])).toEqual([[1, "o"], [2, "o"], [3, "r"], [10, "o"], [10, "x"]]);
    expect(JSON.stringify(cast)).not.toContain("secret");
  });

  it("reads version 2, in which times are since the start", () => {
    const cast = parseCast('{"version":2,"width":90,"height":9}\n[0.5,"o","a"]\n[2,"o","b"]\n');
    expect(cast).toMatchObject({ cols: 90, rows: 9, duration: 2 });
  });

  it("reports a recording that was cut, and refuses other data", () => {
    expect(parseCast(`${source}[1,"o","ha`)).toMatchObject({ cut: true, duration: 10 });
    for (const bad of ["", "[]", "null", '{"version":9}', "<html>"]) expect(() => parseCast(bad)).toThrow();
  });

  it("bounds sizes that would harm the page", () => {
    expect(parseCast('{"version":3,"term":{"cols":1e9,"rows":-1}}')).toMatchObject({ cols: 1000, rows: 24 });
  });

  it("shortens idle times", () => {
    expect(shortened(parseCast(source), 1)).toMatchObject({ duration: 4 });
  });
});

describe("Player", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const make = () => {
    const screen = new FakeScreen();
    let state: PlayerState | undefined;
    const player = new Player(parseCast(source), screen, (s) => {
      state = s;
    });
    return { screen, player, state: () => state };
  };

  it("prints at the original pace, and stops at the end", () => {
    const { screen, player, state } = make();
    player.play();
    expect(screen.text).toBe("");
    vi.advanceTimersByTime(1100);
    expect(screen.text).toBe("one\r\n");
    vi.advanceTimersByTime(2000);
    expect(screen).toMatchObject({ text: "one\r\ntwo\r\n", size: "100x30" });
    vi.advanceTimersByTime(8000);
    expect(state()).toMatchObject({ at: 10, playing: false, exit: "2" });
  });

  it("plays faster", () => {
    const { screen, player } = make();
    player.setSpeed(4);
    player.play();
    vi.advanceTimersByTime(2600);
    expect(screen.text).toBe("one\r\ntwo\r\nthree");
  });

  it("seeks in both directions", () => {
    const { screen, player, state } = make();
    player.seek(9);
    expect(screen.text).toBe("one\r\ntwo\r\n");
    player.seek(1.5);
    expect(screen).toMatchObject({ text: "one\r\n", size: "20x5" });
    expect(state()).toMatchObject({ at: 1.5, playing: false, exit: undefined });
  });

  it("does not move while paused, and starts again after its end", () => {
    const { screen, player, state } = make();
    player.play();
    vi.advanceTimersByTime(1500);
    player.pause();
    vi.advanceTimersByTime(60_000);
    expect(screen.text).toBe("one\r\n");
    expect(state()?.at).toBeCloseTo(1.5, 1);
    player.seek(10);
    player.play();
    expect(screen.text).toBe("");
    player.close();
  });
});
