import type { KeyboardEvent, ReactNode } from "react";
import { inertLine } from "./inert";

export interface Column<Row> {
  id: string;
  header: string;
  cell: (row: Row) => ReactNode;
  width?: string;
  align?: "start" | "end";
}

export interface TableProps<Row> {
  columns: Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** The name of the row, for tests and screen readers. */
  rowLabel: (row: Row) => string;
  onOpen?: (row: Row) => void;
  empty?: ReactNode;
  /** The table's name. */
  label?: string;
}

/** Moves the focus among rows with j and k or the arrows; Enter opens. */
export function rowKeys(event: KeyboardEvent<HTMLElement>, open?: () => void) {
  const row = event.currentTarget;
  if (event.target !== row || event.ctrlKey || event.metaKey || event.altKey) return;
  const to =
    event.key === "j" || event.key === "ArrowDown"
      ? row.nextElementSibling
      : event.key === "k" || event.key === "ArrowUp"
        ? row.previousElementSibling
        : null;
  if (to instanceof HTMLElement) {
    to.focus();
    event.preventDefault();
  } else if (event.key === "Enter" && open) {
    open();
    event.preventDefault();
  }
}

function inControl(target: EventTarget): boolean {
  return target instanceof Element && target.closest("a, button, input, select, textarea, label") !== null;
}

export function Table<Row>({ columns, rows, rowKey, rowLabel, onOpen, empty, label }: TableProps<Row>) {
  if (rows.length === 0 && empty) return empty;
  return (
    <div className="p-table-frame">
      <table className="p-table" aria-label={label}>
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.id} scope="col" style={{ width: c.width, textAlign: c.align }}>
                {c.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr
              key={rowKey(row)}
              aria-label={inertLine(rowLabel(row)).text}
              tabIndex={onOpen ? 0 : undefined}
              className={onOpen ? "p-row-opens" : undefined}
              onClick={onOpen ? (e) => !inControl(e.target) && onOpen(row) : undefined}
              onKeyDown={onOpen ? (e) => rowKeys(e, () => onOpen(row)) : undefined}
            >
              {columns.map((c) => (
                <td key={c.id} data-label={c.header} style={{ textAlign: c.align }}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
