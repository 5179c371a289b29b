export interface FeedView<T> {
  /** The lines, oldest first. */
  items: readonly T[];
  /** The note that events were lost; they can be read from the API. */
  gap: string | null;
  paused: boolean;
  /** The number of lines that arrived while paused. */
  held: number;
}

// The interval in milliseconds at which subscribers are notified, because lines may arrive by the
// hundred.
const notifyInterval = 150;

/** The newest lines of an endless list, for one list on one page. */
export class Feed<T> {
  view: FeedView<T> = { items: [], gap: null, paused: false, held: 0 };
  private readonly limit: number;
  private readonly key: (item: T) => string | number;
  private readonly keys = new Set<string | number>();
  private items: T[] = [];
  private gap: string | null = null;
  private paused = false;
  private held = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly listeners = new Set<() => void>();

  constructor(limit: number, key: (item: T) => string | number) {
    this.limit = limit;
    this.key = key;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size > 0) return;
      clearTimeout(this.timer);
      this.timer = undefined;
    };
  };

  readonly read = (): FeedView<T> => this.view;

  readonly setPaused = (paused: boolean) => {
    this.paused = paused;
    if (!paused) this.held = 0;
    this.show();
  };

  /** Adds a line unless it exists: after a reconnect some are sent twice. */
  push(item: T) {
    const key = this.key(item);
    if (this.keys.has(key)) return;
    this.keys.add(key);
    this.items.push(item);
    if (this.paused) this.held++;
    if (this.items.length > this.limit * 1.25) {
      for (const old of this.items.splice(0, this.items.length - this.limit)) this.keys.delete(this.key(old));
    }
    this.timer ??= setTimeout(() => this.show(), notifyInterval);
  }

  /** Records that the server reported lost events. */
  lost(text: string) {
    this.gap = text;
    this.show();
  }

  private show() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const items = this.paused ? this.view.items : this.items.slice(-this.limit);
    this.view = { items, gap: this.gap, paused: this.paused, held: this.held };
    for (const listener of this.listeners) listener();
  }
}
