/** The state of an attached terminal, as a page shows it. */
export interface Attachment {
  phase: "connecting" | "attached" | "lost" | "ended" | "refused";
  /** The name of the session that has control, or null. */
  controller: string | null;
  /** This viewer has control. */
  mine: boolean;
  cols: number;
  rows: number;
  exit: number | undefined;
  /** Why the connection was refused, or what failed. */
  problem: string;
}

/** The part of a WebSocket that is used here. */
export interface Socket {
  binaryType: BinaryType;
  readyState: number;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(): void;
  onopen: ((event: Event) => unknown) | null;
  onmessage: ((event: MessageEvent) => unknown) | null;
  onclose: ((event: CloseEvent) => unknown) | null;
}

export interface Options {
  open: () => Socket;
  onOutput: (data: Uint8Array) => void;
  /** Called when the whole screen is sent again. */
  onScreenReset: () => void;
  onChange: (state: Attachment) => void;
}

const initial: Attachment = { phase: "connecting", controller: null, mine: false, cols: 80, rows: 24, exit: undefined, problem: "" };

/** Pauses between attempts to reconnect, in milliseconds. */
const retryDelays = [500, 1000, 2000, 4000, 8000, 15000];

/**
 * The largest message in bytes: a longer paste is sent in pieces, because a server may limit
 * messages.
 */
const maxMessage = 16 << 10;

/**
 * Attaches to a terminal, and reconnects when the connection breaks. The user sees output, and
 * types only after taking control. After a break no viewer has control, so that it is never taken
 * by accident.
 */
export class TerminalClient {
  readonly #options: Options;
  #state: Attachment = initial;
  #socket: Socket | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempts = 0;
  #closed = false;

  constructor(options: Options) {
    this.#options = options;
    this.#connect();
  }

  get state(): Attachment {
    return this.#state;
  }

  take(): void {
    this.#send({ type: "take" });
  }

  release(): void {
    this.#send({ type: "release" });
  }

  /** Sets the program's size. Only the viewer in control may do so. */
  resize(cols: number, rows: number): void {
    if (this.#state.mine && (cols !== this.#state.cols || rows !== this.#state.rows)) this.#send({ type: "resize", cols, rows });
  }

  /** Sends typed text. Without control nothing is sent. */
  input(text: string): boolean {
    if (!this.#state.mine || this.#socket?.readyState !== 1) return false;
    const bytes = new TextEncoder().encode(text);
    for (let at = 0; at < bytes.length; at += maxMessage) this.#socket.send(bytes.slice(at, at + maxMessage));
    return true;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #connect(): void {
    const socket = this.#options.open();
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onmessage = (event: MessageEvent) => {
      if (socket !== this.#socket) return;
      if (event.data instanceof ArrayBuffer) return this.#options.onOutput(new Uint8Array(event.data));
      const frame = read(event.data);
      if (frame?.["type"] === "ready") {
        opened = true;
        this.#attempts = 0;
        this.#options.onScreenReset();
      }
      if (frame) this.#receive(frame);
    };
    socket.onclose = () => {
      if (socket !== this.#socket || this.#closed) return;
      if (this.#state.phase === "ended" || this.#state.phase === "refused") return;
      // A first attempt without a response is repeated too, but not forever.
      const wait = retryDelays[this.#attempts++];
      if (wait === undefined) {
        this.#set({ phase: "refused", mine: false, controller: null, problem: opened ? "The connection was lost." : "The terminal cannot be reached." });
        return;
      }
      this.#set({ phase: "lost", mine: false, controller: null });
      this.#timer = setTimeout(() => this.#connect(), wait);
    };
  }

  #receive(frame: Record<string, unknown>): void {
    switch (frame["type"]) {
      case "ready":
        this.#set({ phase: "attached", exit: undefined, problem: "", ...control(frame), ...size(frame) });
        break;
      case "control":
        this.#set({ problem: "", ...control(frame) });
        break;
      case "size":
        this.#set(size(frame));
        break;
      case "exit":
        this.#set({ phase: "ended", mine: false, controller: null, exit: typeof frame["exit_code"] === "number" ? frame["exit_code"] : undefined });
        break;
      case "error": {
        const text = typeof frame["text"] === "string" ? frame["text"] : "Something went wrong.";
        const fatal = frame["code"] !== "no_control" && this.#state.phase !== "attached";
        this.#set({ problem: text, ...(fatal ? { phase: "refused" as const } : {}) });
      }
    }
  }

  #send(frame: Record<string, unknown>): void {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(frame));
  }

  #set(change: Partial<Attachment>): void {
    this.#state = { ...this.#state, ...change };
    this.#options.onChange(this.#state);
  }
}

function read(data: unknown): Record<string, unknown> | undefined {
  if (typeof data !== "string") return undefined;
  try {
    const frame = JSON.parse(data) as unknown;
    return typeof frame === "object" && frame !== null ? (frame as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function control(frame: Record<string, unknown>): Pick<Attachment, "controller" | "mine"> {
  return { controller: typeof frame["controller"] === "string" && frame["controller"] !== "" ? frame["controller"] : null, mine: frame["mine"] === true };
}

function size(frame: Record<string, unknown>): Partial<Attachment> {
  const cols = frame["cols"];
  const rows = frame["rows"];
  if (typeof cols !== "number" || typeof rows !== "number" || cols < 1 || rows < 1 || cols > 1000 || rows > 1000) return {};
  return { cols: Math.floor(cols), rows: Math.floor(rows) };
}
