import { useSyncExternalStore } from "react";

interface Clock {
  now: number;
  subscribe: (listener: () => void) => () => void;
  read: () => number;
}

const clocks = new Map<number, Clock>();

// One timer per interval, shared by all components that use it.
function clock(interval: number): Clock {
  const known = clocks.get(interval);
  if (known) return known;
  const listeners = new Set<() => void>();
  let timer: ReturnType<typeof setInterval> | undefined;
  const clock: Clock = {
    now: Date.now(),
    subscribe(listener) {
      listeners.add(listener);
      timer ??= setInterval(() => {
        clock.now = Date.now();
        for (const l of listeners) l();
      }, interval);
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
    read() {
      if (timer === undefined) clock.now = Date.now();
      return Math.floor(clock.now / interval) * interval;
    },
  };
  clocks.set(interval, clock);
  return clock;
}

/** The time, rounded to an interval. The component is drawn again when the interval passes. */
export function useNow(interval = 10_000): number {
  const c = clock(interval);
  useSyncExternalStore(c.subscribe, c.read);
  return c.now;
}
