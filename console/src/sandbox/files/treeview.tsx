import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useRef } from "react";
import { format, Icon, type IconName, Inert } from "../../parts";
import { keyAction, type Node } from "./tree";

const icons: Record<Node["type"], IconName> = { dir: "folder", file: "file", symlink: "link", other: "question" };

export interface TreeProps {
  rows: readonly Node[];
  selected: string;
  focused: string;
  onFocus: (path: string) => void;
  onToggle: (path: string) => void;
  onChoose: (node: Node) => void;
}

/** A tree of files and directories, with the usual keys: arrows, Enter and Space. */
export function TreeView({ rows, selected, focused, onFocus, onToggle, onChoose }: TreeProps) {
  const frame = useRef<HTMLDivElement>(null);
  const movedByKey = useRef(false);
  const virtualizer = useVirtualizer({ count: rows.length, getScrollElement: () => frame.current, estimateSize: () => 26, overscan: 20, getItemKey: (i) => rows[i]?.path ?? i });
  const at = rows.findIndex((row) => row.path === focused);
  useEffect(() => {
    if (!movedByKey.current || at < 0) return;
    movedByKey.current = false;
    virtualizer.scrollToIndex(at);
    requestAnimationFrame(() => frame.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus());
  }, [at, virtualizer]);
  const key = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const what = keyAction(event.key, rows, focused);
    if (what.to !== undefined) {
      movedByKey.current = true;
      onFocus(what.to);
    } else if (what.toggle !== undefined) {
      onToggle(what.toggle);
    } else if (what.choose !== undefined) {
      const node = rows.find((row) => row.path === what.choose);
      if (node) onChoose(node);
    } else return;
    event.preventDefault();
  };
  const anchor = at < 0 ? rows[0]?.path : focused;
  return (
    <div ref={frame} className="sb-tree" onKeyDown={key}>
      <div role="tree" aria-label="Files" style={{ height: virtualizer.getTotalSize(), position: "relative" }}>
        {virtualizer.getVirtualItems().map((one) => {
          const row = rows[one.index];
          if (!row) return null;
          return (
            <div
              key={one.key} role="treeitem" aria-level={row.level} aria-posinset={row.index} aria-setsize={row.siblings}
              aria-expanded={row.type === "dir" ? row.open : undefined} aria-selected={row.path === selected} aria-busy={row.loading || undefined}
              tabIndex={row.path === anchor ? 0 : -1} className="sb-node"
              style={{ transform: `translateY(${one.start}px)`, paddingInlineStart: 6 + (row.level - 1) * 14 }}
              onFocus={() => row.path !== focused && onFocus(row.path)}
              onClick={() => {
                onFocus(row.path);
                if (row.type === "dir") onToggle(row.path);
                else onChoose(row);
              }}
            >
              <span className="sb-twist">{row.type === "dir" && <Icon name={row.open ? "chevron-down" : "chevron-right"} size={12} />}</span>
              <Icon name={icons[row.type]} size={14} />
              <span className="sb-node-name">
                <Inert text={row.name} />
                {row.target && (
                  <span className="quiet">
                    {" → "}
                    <Inert text={row.target} />
                  </span>
                )}
              </span>
              {row.type === "file" && <span className="quiet sb-node-size">{format.bytes(row.size)}</span>}
            </div>
          );
        })}
      </div>
    </div>
  );
}
