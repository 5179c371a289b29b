import type { IDisposable, ITerminalOptions, Terminal } from "@xterm/xterm";

/**
 * The operating system commands (OSC) of terminals, all of which are ignored. With them, a sandbox
 * could set the title of the page or its colours to impersonate another one. It could write text to
 * the clipboard that a person then pastes into a shell (52). It could also hide the target of a
 * link behind an innocent word (8).
 */
const ignoredCommands = [
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 46, 50, 51, 52, 60, 66, 99, 104, 105, 106, 110, 111, 112, 113, 114,
  115, 116, 117, 118, 119, 133, 176, 555, 633, 666, 697, 701, 704, 705, 706, 707, 708, 720, 777, 1337, 5113, 7704, 30001, 30101,
];

/** Settings that every terminal here has. */
export const guardedOptions: ITerminalOptions = {
  // A link is shown as its text, and cannot be followed.
  linkHandler: { activate: () => undefined, hover: () => undefined, leave: () => undefined },
  windowOptions: {},
  allowProposedApi: false,
  scrollback: 5000,
};

/**
 * Restricts a sandbox's output to printing. With replies false, the terminal also sends no replies
 * and does not report the mouse, which a read-only viewer needs: a reply would be typed.
 */
export function guard(terminal: Terminal, replies: boolean): IDisposable {
  const parser = terminal.parser;
  const ignore = () => true;
  const handlers: IDisposable[] = ignoredCommands.map((command) => parser.registerOscHandler(command, ignore));
  // Window reports: the title that a sandbox set would be typed back as a command.
  handlers.push(parser.registerCsiHandler({ final: "t" }, ignore));
  // Requests for settings and capabilities, and images.
  for (const intermediates of ["$", "+"]) handlers.push(parser.registerDcsHandler({ intermediates, final: "q" }, ignore));
  handlers.push(parser.registerDcsHandler({ final: "q" }, ignore));
  if (!replies) {
    for (const id of [
      { final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" }, { final: "n" }, { prefix: "?", final: "n" },
      { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" }, { prefix: ">", final: "q" },
    ]) {
      handlers.push(parser.registerCsiHandler(id, ignore));
    }
    handlers.push(parser.registerCsiHandler({ prefix: "?", final: "h" }, (params) => params.some(isMouseMode)));
  }
  return { dispose: () => handlers.forEach((one) => one.dispose()) };
}

/** Modes that report the mouse: a click would be sent to the sandbox. */
function isMouseMode(mode: number | number[]): boolean {
  return typeof mode === "number" && (mode === 9 || (mode >= 1000 && mode <= 1016 && mode !== 1007));
}

/**
 * Makes text from the clipboard safe to type: an escape sequence in it could end a bracketed paste
 * early, and the rest would be executed. Line ends become those of the Enter key.
 */
export function pasteable(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\r?\n/g, "\r").replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, "");
}
