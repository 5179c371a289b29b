import { useEffect, useRef, useState } from "react";
import type { FleetRow } from "../api/console";

// No row moves until this many milliseconds after the pointer last moved.
const holdPeriod = 3_000;

/** The rows in their previous order, with new ones at the end. */
export function keepOrder(before: readonly string[], sorted: readonly FleetRow[]): FleetRow[] {
  const position = new Map(before.map((id, at) => [id, at]));
  const last = before.length;
  // The sort is stable: new rows keep their own order at the end.
  return [...sorted].sort((a, b) => (position.get(a.id) ?? last) - (position.get(b.id) ?? last));
}

/**
 * Keeps rows in their order while the pointer moves among them. Otherwise a click could stop the
 * sandbox that has just moved to the position of another one.
 */
export function useHeldOrder(sorted: FleetRow[], query: unknown): { rows: FleetRow[]; touch: () => void } {
  const [busy, setBusy] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const last = useRef<{ query: unknown; ids: string[] }>({ query, ids: [] });
  const rows = busy && last.current.query === query ? keepOrder(last.current.ids, sorted) : sorted;
  useEffect(() => {
    last.current = { query, ids: rows.map((row) => row.id) };
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const touch = () => {
    setBusy(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setBusy(false), holdPeriod);
  };
  return { rows, touch };
}
