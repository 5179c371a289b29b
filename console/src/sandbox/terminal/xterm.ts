import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { guard, guardedOptions, pasteable } from "./guard";

const defaultFontSize = 13;
const minFontSize = 9;
/** Width of a character in the monospaced fonts, relative to the font size. */
const charWidth = 0.605;

export interface Options {
  /**
   * Called with what the user typed. Without it the terminal accepts no keys and sends no replies.
   */
  onInput?: (text: string) => void;
  /** The output is of a program without a terminal: its lines end with a line feed only. */
  plain?: boolean;
  /** Called when the user leaves the terminal with the keyboard. */
  onLeave: () => void;
}

/** A terminal on the page, protected against its output. */
export class XTerm {
  readonly terminal: Terminal;
  readonly #box: HTMLElement;
  readonly #fit = new FitAddon();
  readonly #search = new SearchAddon();
  readonly #disposers: (() => void)[] = [];

  constructor(box: HTMLElement, label: string, options: Options) {
    this.#box = box;
    this.terminal = new Terminal({
      ...guardedOptions,
      cols: 80, rows: 24, fontSize: defaultFontSize, fontFamily: css("--mono") || "monospace", theme: theme(), minimumContrastRatio: 4.5,
      convertEol: options.plain ?? false, disableStdin: true, cursorBlink: false, cursorInactiveStyle: "outline",
    });
    const guardHandle = guard(this.terminal, options.onInput !== undefined);
    this.terminal.loadAddon(this.#fit);
    this.terminal.loadAddon(this.#search);
    this.terminal.open(box);
    this.terminal.textarea?.setAttribute("aria-label", label);
    this.terminal.attachCustomKeyEventHandler((event) => {
      if (event.ctrlKey && event.shiftKey && event.key === "F6") {
        // The key that leaves the terminal, because it takes Tab and Escape for itself.
        if (event.type === "keydown") options.onLeave();
        return false;
      }
      // Without control the page gets the keys, so that Tab moves the focus.
      return !this.terminal.options.disableStdin;
    });
    const onInput = options.onInput;
    if (onInput) {
      const data = this.terminal.onData(onInput);
      this.#disposers.push(() => data.dispose());
      const paste = (event: ClipboardEvent) => {
        event.preventDefault();
        event.stopPropagation();
        if (!this.terminal.options.disableStdin) this.terminal.paste(pasteable(event.clipboardData?.getData("text/plain") ?? ""));
      };
      box.addEventListener("paste", paste, { capture: true });
      this.#disposers.push(() => box.removeEventListener("paste", paste, { capture: true }));
    }
    const themeObserver = new MutationObserver(() => {
      this.terminal.options.theme = theme();
    });
    themeObserver.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const preference = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => {
      this.terminal.options.theme = theme();
    };
    preference.addEventListener("change", changed);
    this.#disposers.push(() => themeObserver.disconnect(), () => preference.removeEventListener("change", changed), () => guardHandle.dispose());
  }

  /** Takes the size that fits its element, and returns it. */
  fill(): { cols: number; rows: number } | undefined {
    if (this.#box.clientWidth === 0) return undefined;
    this.terminal.options.fontSize = defaultFontSize;
    this.#fit.fit();
    return { cols: this.terminal.cols, rows: this.terminal.rows };
  }

  /** Takes a size that another viewer chose, with characters small enough to fit. */
  show(cols: number, rows: number): void {
    this.terminal.resize(cols, rows);
    const size = Math.floor((this.#box.clientWidth - 24) / (cols * charWidth));
    this.terminal.options.fontSize = Math.max(minFontSize, Math.min(defaultFontSize, size || defaultFontSize));
  }

  /** Searches for text; an empty text clears the result. */
  find(text: string, back = false): boolean {
    if (text === "") {
      this.terminal.clearSelection();
      return true;
    }
    return back ? this.#search.findPrevious(text) : this.#search.findNext(text);
  }

  /** Calls back when the element's size changes. */
  onResize(changed: () => void): void {
    const observer = new ResizeObserver(() => requestAnimationFrame(changed));
    observer.observe(this.#box);
    this.#disposers.push(() => observer.disconnect());
  }

  close(): void {
    for (const end of this.#disposers) end();
    this.terminal.dispose();
  }
}

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const light: ITheme = {
  black: "#24292e", red: "#b0241c", green: "#1a6b40", yellow: "#835000", blue: "#1d5b9f", magenta: "#7a3e9d", cyan: "#0b6670", white: "#5c656d",
  brightBlack: "#566069", brightRed: "#c9372c", brightGreen: "#216e39", brightYellow: "#946000", brightBlue: "#2269b5", brightMagenta: "#8f4bb8", brightCyan: "#157a85", brightWhite: "#24292e",
};
const dark: ITheme = {
  black: "#2a3136", red: "#f4918a", green: "#6fcd96", yellow: "#e3b457", blue: "#8bb9f2", magenta: "#d3a6f0", cyan: "#5fc3ca", white: "#d5dadd",
  brightBlack: "#7f8a94", brightRed: "#ffb0aa", brightGreen: "#93e0b3", brightYellow: "#f2cd83", brightBlue: "#b0d0fa", brightMagenta: "#e4c5f8", brightCyan: "#8edce1", brightWhite: "#ffffff",
};

function theme(): ITheme {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
  const [background, foreground] = [css("--bg-sunken"), css("--text")];
  return { ...(isDark ? dark : light), background, foreground, cursor: css("--accent"), cursorAccent: background, selectionBackground: isDark ? "#2f5e6a" : "#b5dde1" };
}
