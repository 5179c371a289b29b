import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type ReactNode, useLayoutEffect, useRef, useState } from "react";
import { Button } from "../parts";

export interface LinesProps<T> {
  items: readonly T[];
  keyOf: (item: T) => string;
  label: string;
  /** The estimated height of a line, in pixels. */
  height: number;
  children: (item: T) => ReactNode;
  /** Stays at the end while new lines arrive, unless the user scrolled up. */
  follow?: boolean;
  /** Content above the lines that does not scroll with them. */
  head?: ReactNode;
  /** The roles of the list and of each line for assistive technology. */
  as?: "list" | "table";
  /** The accessible name of a line. */
  nameOf?: (item: T) => string;
  empty?: ReactNode;
}

/** A list of lines; only visible ones are rendered. */
export function Lines<T>({ items, keyOf, label, height, children, follow = false, head, as = "list", nameOf, empty }: LinesProps<T>) {
  const frame = useRef<HTMLDivElement>(null);
  const [atEnd, setAtEnd] = useState(true);
  const lines = useVirtualizer({
    count: items.length, getScrollElement: () => frame.current, estimateSize: () => height, overscan: 12, scrollMargin: 0, scrollPaddingStart: head ? 31 : 0, paddingEnd: head ? 31 : 0,
    getItemKey: (i) => (items[i] ? keyOf(items[i]) : i)
  });
  const total = lines.getTotalSize();
  const last = items.at(-1);
  const lastKey = last ? keyOf(last) : "";
  // Lines are measured after they are drawn, which moves the end once more.
  useLayoutEffect(() => {
    if (follow && atEnd && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [follow, atEnd, lastKey, total]);
  const onScroll = () => {
    const element = frame.current;
    if (follow && element) setAtEnd(element.scrollHeight - element.scrollTop - element.clientHeight < 40);
  };
  if (items.length === 0 && empty) return empty;
  const row = as === "table" ? "row" : "listitem";
  return (
    <div className="sb-lines-frame">
      <div ref={frame} className="sb-lines" role={as} aria-label={label} tabIndex={0} onScroll={onScroll} aria-rowcount={as === "table" ? items.length : undefined}>
        {head}
        <div role={as === "table" ? "rowgroup" : "presentation"} style={{ height: total, position: "relative" }}>
          {lines.getVirtualItems().map((one) => {
            const item = items[one.index];
            if (item === undefined) return null;
            return (
              <div
                key={one.key} ref={lines.measureElement} data-index={one.index} role={row} aria-label={nameOf?.(item)} tabIndex={-1}
                aria-rowindex={as === "table" ? one.index + 1 : undefined}
                aria-posinset={as === "list" ? one.index + 1 : undefined} aria-setsize={as === "list" ? items.length : undefined}
                className="sb-line" onKeyDown={moveFocus} style={{ transform: `translateY(${one.start}px)` }}
              >
                {children(item)}
              </div>
            );
          })}
        </div>
      </div>
      {follow && !atEnd && (
        <Button
          className="sb-to-end" icon="chevron-down"
          onClick={() => setAtEnd(true)}
        >
          Newest
        </Button>
      )}
    </div>
  );
}

/** Moves among lines with j and k. */
function moveFocus(event: KeyboardEvent<HTMLElement>) {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.key !== "j" && event.key !== "k")) return;
  const to = event.key === "j" ? event.currentTarget.nextElementSibling : event.currentTarget.previousElementSibling;
  if (to instanceof HTMLElement) {
    (to.querySelector<HTMLElement>("a, button") ?? to).focus();
    event.preventDefault();
  }
}
