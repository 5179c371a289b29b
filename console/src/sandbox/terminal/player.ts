import { sizeOf, type Cast } from "./cast";

/** The screen that a recording is played on. */
export interface Screen {
  reset(cols: number, rows: number): void;
  write(text: string): void;
  resize(cols: number, rows: number): void;
}

export interface PlayerState {
  at: number;
  playing: boolean;
  speed: number;
  /** The exit code, once it is known. */
  exit: string | undefined;
}

/** The most characters that are written to the screen at once. */
const maxWrite = 64 << 10;

/** Plays a recording on a screen, by the browser's clock. */
export class Player {
  #cast: Cast;
  readonly #screen: Screen;
  readonly #onChange: (state: PlayerState) => void;
  #next = 0;
  #at = 0;
  #playing = false;
  #speed = 1;
  #exit: string | undefined;
  #startedAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(cast: Cast, screen: Screen, onChange: (state: PlayerState) => void) {
    this.#cast = cast;
    this.#screen = screen;
    this.#onChange = onChange;
    screen.reset(cast.cols, cast.rows);
  }

  get state(): PlayerState {
    return { at: this.#now(), playing: this.#playing, speed: this.#speed, exit: this.#exit };
  }

  play(): void {
    if (this.#playing) return;
    if (this.#at >= this.#cast.duration) this.#rewind();
    this.#playing = true;
    this.#startedAt = performance.now();
    this.#tick();
  }

  pause(): void {
    if (!this.#playing) return;
    this.#at = this.#now();
    this.#playing = false;
    clearTimeout(this.#timer);
    this.#notify();
  }

  /** Goes to a time, with all earlier output on the screen. */
  seek(at: number): void {
    const to = Math.min(Math.max(0, at), this.#cast.duration);
    if (to < this.#at) this.#rewind();
    this.#at = to;
    this.#startedAt = performance.now();
    this.#writeUntil(to);
    if (this.#playing) this.#tick();
    else this.#notify();
  }

  setSpeed(speed: number): void {
    this.#at = this.#now();
    this.#startedAt = performance.now();
    this.#speed = speed;
    if (this.#playing) this.#tick();
    else this.#notify();
  }

  close(): void {
    this.#playing = false;
    clearTimeout(this.#timer);
  }

  #now(): number {
    if (!this.#playing) return this.#at;
    return Math.min(this.#cast.duration, this.#at + ((performance.now() - this.#startedAt) / 1000) * this.#speed);
  }

  #rewind(): void {
    this.#next = 0;
    this.#at = 0;
    this.#exit = undefined;
    this.#screen.reset(this.#cast.cols, this.#cast.rows);
  }

  #tick(): void {
    clearTimeout(this.#timer);
    const now = this.#now();
    this.#writeUntil(now);
    if (this.#next >= this.#cast.events.length && now >= this.#cast.duration) {
      this.#at = this.#cast.duration;
      this.#playing = false;
      this.#notify();
      return;
    }
    this.#notify();
    const due = (this.#cast.events[this.#next]?.at ?? this.#cast.duration) - now;
    // The position moves between events too, so it is reported ten times a second.
    this.#timer = setTimeout(() => this.#tick(), Math.min(100, Math.max(8, (due / this.#speed) * 1000)));
  }

  #writeUntil(time: number): void {
    let text = "";
    const flush = () => {
      if (text !== "") this.#screen.write(text);
      text = "";
    };
    for (let event = this.#cast.events[this.#next]; event && event.at <= time; event = this.#cast.events[++this.#next]) {
      if (event.code === "o") text += event.data;
      if (text.length > maxWrite) flush();
      if (event.code === "x") this.#exit = event.data;
      const size = event.code === "r" ? sizeOf(event.data) : undefined;
      if (size) {
        flush();
        this.#screen.resize(size.cols, size.rows);
      }
    }
    flush();
  }

  #notify(): void {
    this.#onChange(this.state);
  }
}
