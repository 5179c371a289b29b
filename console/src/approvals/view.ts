// Tracks which parts of the inbox are visible, and since when.
import { useCallback, useEffect, useRef } from "react";

export interface InView {
  /** A ref for the head of a card. */
  watch: (id: string) => (element: HTMLElement | null) => void;
  /** Returns the time from which a card has been in view, or null. */
  since: (id: string) => number | null;
}

/** useInView tracks which cards' heads are on the screen. */
export function useInView(): InView {
  const since = useRef(new Map<string, number>());
  const elements = useRef(new Map<string, HTMLElement>());
  const observer = useRef<IntersectionObserver | null>(null);
  const refs = useRef(new Map<string, (element: HTMLElement | null) => void>());

  const observe = useCallback(() => {
    observer.current ??= new IntersectionObserver(
      (seen) => {
        for (const each of seen) {
          const id = (each.target as HTMLElement).dataset["request"];
          if (id === undefined) continue;
          if (!each.isIntersecting) since.current.delete(id);
          else if (!since.current.has(id)) since.current.set(id, Date.now());
        }
      },
      { threshold: 0.9 },
    );
    return observer.current;
  }, []);

  useEffect(
    () => () => {
      observer.current?.disconnect();
      observer.current = null;
    },
    [],
  );

  const watch = useCallback(
    (id: string) => {
      const known = refs.current.get(id);
      if (known) return known;
      const ref = (element: HTMLElement | null) => {
        const old = elements.current.get(id);
        if (old) observe().unobserve(old);
        if (element) {
          elements.current.set(id, element);
          observe().observe(element);
        } else {
          elements.current.delete(id);
          since.current.delete(id);
          refs.current.delete(id);
        }
      };
      refs.current.set(id, ref);
      return ref;
    },
    [observe],
  );
  return { watch, since: useCallback((id: string) => since.current.get(id) ?? null, []) };
}

/** useOnVisible calls a function whenever the page becomes visible. */
export function useOnVisible(callback: () => void): void {
  const last = useRef(callback);
  last.current = callback;
  useEffect(() => {
    const check = () => {
      if (document.visibilityState === "visible") last.current();
    };
    document.addEventListener("visibilitychange", check);
    window.addEventListener("focus", check);
    return () => {
      document.removeEventListener("visibilitychange", check);
      window.removeEventListener("focus", check);
    };
  }, []);
}
