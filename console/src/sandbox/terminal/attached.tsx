import { useEffect, useId, useRef, useState } from "react";
import { useCan } from "../../api/session";
import { Badge, Button, Inert, inertLine } from "../../parts";
import { insideURL, useRefresh, useSandbox } from "../queries";
import { type Attachment, TerminalClient } from "./client";
import { TerminalTools } from "./toolbar";
import { XTerm } from "./xterm";

export interface TerminalInfo {
  pid: number;
  command: string[];
  started_at: string;
  cols: number;
  rows: number;
  viewers: number;
  controller: string | null;
  mine: boolean;
}

function attachURL(id: string, pid: number): string {
  const url = new URL(insideURL(id, `terminals/${pid}/attach`), location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

/** A terminal of the sandbox. It is read-only until the user takes control. */
export function Attached({ pid, viewers, small = false }: { pid: number; viewers: number | undefined; small?: boolean }) {
  const sandbox = useSandbox();
  const can = useCan("operator");
  const refresh = useRefresh();
  const screenElement = useRef<HTMLDivElement>(null);
  const screen = useRef<XTerm>(null);
  const client = useRef<TerminalClient>(null);
  const bar = useRef<HTMLDivElement>(null);
  const [state, setState] = useState<Attachment>();
  const [attempts, setAttempts] = useState(0);
  const hint = useId();

  useEffect(() => {
    if (!screenElement.current) return;
    const term = new XTerm(screenElement.current, `Terminal ${pid}`, {
      onInput: (text) => void client.current?.input(text),
      onLeave: () => bar.current?.querySelector<HTMLElement>("button, input")?.focus(),
    });
    screen.current = term;
    const fit = () => {
      const now = client.current?.state;
      if (!now) return;
      if (!now.mine) return term.show(now.cols, now.rows);
      const size = term.fill();
      if (size) client.current?.resize(size.cols, size.rows);
    };
    let mine = false;
    client.current = new TerminalClient({
      open: () => new WebSocket(attachURL(sandbox.id, pid)),
      onOutput: (data) => term.terminal.write(data),
      onScreenReset: () => term.terminal.reset(),
      onChange: (next) => {
        term.terminal.options.disableStdin = !next.mine;
        setState(next);
        if (next.mine !== mine) {
          mine = next.mine;
          if (mine) term.terminal.focus();
          void refresh("terminals");
        }
        fit();
      },
    });
    term.onResize(fit);
    return () => {
      client.current?.close();
      term.close();
      client.current = null;
      screen.current = null;
    };
    // Another terminal, or another try, uses another connection.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [sandbox.id, pid, attempts]);

  const other = state?.controller && !state.mine ? state.controller : undefined;
  return (
    <section className={small ? "sb-term sb-term-small" : "sb-term"} aria-label={`Terminal ${pid}`}>
      <div className="sb-bar" ref={bar}>
        <Status state={state} />
        {viewers !== undefined && <span className="quiet">{viewers === 1 ? "1 viewer" : `${viewers} viewers`}</span>}
        <span className="sb-fill" />
        {can && state?.phase === "attached" && (
          <Button
            variant={state.mine ? "plain" : "primary"}
            title={other ? `${inertLine(other).text} has control now and loses it. The audit log records this.` : undefined}
            onClick={() => (state.mine ? client.current?.release() : client.current?.take())}
          >
            {state.mine ? "Release control" : "Take control"}
          </Button>
        )}
        {(state?.phase === "refused" || state?.phase === "lost") && <Button onClick={() => setAttempts(attempts + 1)}>Connect again</Button>}
      </div>
      {state?.problem && (
        <p className="sb-note" role="alert">
          <Inert text={state.problem} />
        </p>
      )}
      <div className={state?.mine ? "sb-screen sb-screen-mine" : "sb-screen"} ref={screenElement} aria-describedby={hint} />
      <p className="sb-hidden" id={hint}>
        {state?.mine ? "What is typed goes to the program. Control, Shift and F6 leave the terminal." : "Read only."}
      </p>
      {!small && <TerminalTools screen={screen} />}
    </section>
  );
}

function Status({ state }: { state: Attachment | undefined }) {
  switch (state?.phase) {
    case undefined:
    case "connecting":
      return <Badge tone="info">connecting</Badge>;
    case "lost":
      return <Badge tone="warn">reconnecting</Badge>;
    case "refused":
      return <Badge tone="bad">not attached</Badge>;
    case "ended":
      return <Badge tone="quiet">ended{state.exit === undefined ? "" : `, exit ${state.exit}`}</Badge>;
    case "attached":
  }
  if (state.mine) {
    return (
      <Badge tone="ok" icon="edit">
        You have control
      </Badge>
    );
  }
  return (
    <>
      <Badge tone="quiet" icon="eye">
        Read only
      </Badge>
      <span className="quiet">{state.controller ? <Inert text={`${state.controller} has control`} /> : "no viewer has control"}</span>
    </>
  );
}
