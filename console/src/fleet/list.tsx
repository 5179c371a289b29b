import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import type { FleetRow } from "../api/console";
import { useWatch } from "../live";
import { Line, Tile, columns } from "./sandbox";
import type { SandboxProps } from "./facts";
import { nextIndex } from "./keys";

const tile = { height: 158, width: 316, gap: 10 };
const line = { height: 46, gap: 0 };

export interface SandboxListProps extends Pick<SandboxProps, "operator" | "onChoose" | "onAct" | "onOpen"> {
  rows: readonly FleetRow[];
  chosen: ReadonlySet<string>;
  table: boolean;
}

/** The fleet; only visible rows are rendered. */
export function SandboxList({ rows, chosen, table, ...rest }: SandboxListProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [geometry, setGeometry] = useState({ width: 0, top: 0 });
  const [current, setCurrent] = useState(0);
  const focusTarget = useRef<number | null>(null);
  const across = table ? 1 : Math.max(1, Math.floor((geometry.width + tile.gap) / (tile.width + tile.gap)));
  const size = table ? line : tile;
  const at = Math.min(current, Math.max(0, rows.length - 1));

  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const measure = () => {
      const scroller = scrollerOf();
      const top = scroller ? element.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop : 0;
      setGeometry((was) => (was.width === element.clientWidth && was.top === top ? was : { width: element.clientWidth, top }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [table]);

  // The React Compiler is not used here, because this library breaks its rules.
  const virtual = useVirtualizer({
    count: Math.ceil(rows.length / across),
    getScrollElement: scrollerOf,
    estimateSize: () => size.height + size.gap,
    overscan: table ? 8 : 2,
    scrollMargin: geometry.top,
  });
  useEffect(() => virtual.measure(), [virtual, size]);

  const seen = virtual.getVirtualItems();
  const from = (seen[0]?.index ?? 0) * across;
  const to = Math.min(rows.length, ((seen.at(-1)?.index ?? -1) + 1) * across);
  useWatch(rows.slice(from, to).map((row) => row.id));

  // The focused row may have to be scrolled into view first.
  useEffect(() => {
    if (focusTarget.current === null) return;
    const element = frame.current?.querySelector<HTMLElement>(`[data-index='${focusTarget.current}']`);
    if (!element) return;
    focusTarget.current = null;
    element.focus({ preventScroll: true });
  });

  const { onChoose, onOpen } = rest;
  const keys = useCallback(
    (event: KeyboardEvent<HTMLElement>) => {
      const item = event.target instanceof HTMLElement ? event.target : null;
      if (!item?.classList.contains("fleet-sandbox") || event.ctrlKey || event.metaKey || event.altKey) return;
      const index = Number(item.dataset["index"]);
      const row = rows[index];
      if (row && event.key === "Enter") onOpen(row);
      else if (row && event.key === "x" && rest.operator) onChoose(row.id, !chosen.has(row.id));
      else {
        const next = nextIndex(event.key, index, rows.length, across);
        if (next === null) return;
        focusTarget.current = next;
        setCurrent(next);
        virtual.scrollToIndex(Math.floor(next / across), { align: "auto" });
      }
      event.preventDefault();
    },
    [rows, across, chosen, virtual, onChoose, onOpen, rest.operator],
  );

  const sandboxes = rows.slice(from, to).map((row, i) => {
    const Box = table ? Line : Tile;
    return (
      <Box
        key={row.id}
        row={row}
        index={from + i}
        total={rows.length}
        chosen={chosen.has(row.id)}
        current={from + i === at || (i === 0 && (at < from || at >= to))}
        {...rest}
      />
    );
  });
  const height = virtual.getTotalSize() - (rows.length > 0 ? size.gap : 0);
  const shift = { transform: `translateY(${(seen[0]?.start ?? geometry.top) - geometry.top}px)` };

  if (table) {
    return (
      <div className="fleet-table" role="table" aria-label="Sandboxes" aria-rowcount={rows.length + 1} onKeyDown={keys}>
        <div role="rowgroup" className="fleet-table-head">
          <div role="row" className="fleet-line" aria-rowindex={1}>
            {columns.map((name) => (
              <span key={name} role="columnheader" className={`fleet-c-${name.toLowerCase().replace("last ", "").replace("load", "meters")}`}>
                {name === "Actions" ? <span className="unseen">{name}</span> : name}
              </span>
            ))}
          </div>
        </div>
        <div role="rowgroup" ref={frame} style={{ height }}>
          <div role="presentation" style={shift}>
            {sandboxes}
          </div>
        </div>
      </div>
    );
  }
  return (
    <div ref={frame} style={{ height }} onKeyDown={keys}>
      <ul
        className="fleet-grid"
        aria-label="Sandboxes"
        style={{ ...shift, gridTemplateColumns: `repeat(${across}, minmax(0, 1fr))`, gridAutoRows: tile.height, gap: tile.gap }}
      >
        {sandboxes}
      </ul>
    </div>
  );
}

function scrollerOf(): HTMLElement | null {
  return document.getElementById("main");
}
