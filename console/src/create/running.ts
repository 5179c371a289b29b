// Running cells in a sandbox, one at a time.
import { useCallback, useEffect, useRef, useState } from "react";
import { base, read } from "../api/client";
import { addEvent, startRun, type CellEvent, type CellRun } from "./cells";
import { readLines } from "./ndjson";

export interface Cell {
  id: number;
  language: string;
  code: string;
  run: CellRun;
  error?: unknown;
}

/** stream runs one cell and calls back with each of its events. */
async function stream(sandbox: string, language: string, code: string, signal: AbortSignal, each: (e: CellEvent) => void): Promise<void> {
  const response = await fetch(`${base}/sandboxes/${encodeURIComponent(sandbox)}/cells`, {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code, language }),
    signal,
  });
  if (!response.ok || !response.body) {
    await read(response);
    throw new Error("The response has no output.");
  }
  await readLines<CellEvent>(response.body, each);
}

// The interval in milliseconds at which output is drawn, because it may be thousands of lines.
const drawInterval = 80;

/** useCells keeps the cells of one sandbox while the page is open. */
export function useCells(sandbox: string) {
  const [cells, setCells] = useState<readonly Cell[]>([]);
  const abort = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => abort.current?.abort(), []);

  const run = useCallback(
    async (language: string, code: string) => {
      if (abort.current) return;
      const control = new AbortController();
      abort.current = control;
      setBusy(true);
      const id = Date.now();
      let state = startRun;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const show = (more: Partial<Cell> = {}) => {
        clearTimeout(timer);
        timer = undefined;
        setCells((all) => all.map((c) => (c.id === id ? { ...c, run: state, ...more } : c)));
      };
      setCells((all) => [...all, { id, language, code, run: state }]);
      try {
        await stream(sandbox, language, code, control.signal, (e) => {
          state = addEvent(state, e);
          timer ??= setTimeout(show, drawInterval);
        });
        // A stream that ends without an end event was cut off.
        if (state.state === "running") state = { ...state, state: "lost" };
        show();
      } catch (error) {
        state = { ...state, state: control.signal.aborted ? "interrupted" : "lost" };
        show(control.signal.aborted ? {} : { error });
      } finally {
        abort.current = null;
        setBusy(false);
      }
    },
    [sandbox],
  );
  return { cells, busy, run, interrupt: useCallback(() => abort.current?.abort(), []) };
}
