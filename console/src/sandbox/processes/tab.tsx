import { useState } from "react";
import { call } from "../../api/client";
import { Badge, Confirm, Empty, format, Inert, inertLine, Loading, Menu, Problem, Select, Table, toast } from "../../parts";
import { useCan } from "../../api/session";
import { commandLine } from "../live/data";
import { inside, useInside, useRefresh, useSandbox } from "../queries";
import { WhileRunning } from "../running";
import { useFilters } from "../search";
import { type Order, ordered, orders, type Placed } from "./tree";

interface Process {
  pid: number;
  ppid?: number;
  user?: string;
  args: string[] | null;
  cpu?: number;
  memory?: number;
  terminal: boolean;
  tag?: string;
}

const signals = ["TERM", "INT", "HUP", "KILL"] as const;
type Signal = (typeof signals)[number];

const effectOf: Record<Signal, string> = {
  TERM: "It is asked to end, and may clean up first.",
  INT: "The signal of Ctrl-C.",
  HUP: "The signal of a closed terminal; some programs reload their settings.",
  KILL: "It ends at once, and can neither clean up nor refuse.",
};

/** The processes of a sandbox. */
export function ProcessesTab() {
  const sandbox = useSandbox();
  return (
    <WhileRunning sandbox={sandbox} what="Processes">
      <Running />
    </WhileRunning>
  );
}

function Running() {
  const sandbox = useSandbox();
  const can = useCan("operator");
  const refresh = useRefresh();
  const [filters, set] = useFilters();
  const [pending, setPending] = useState<{ process: Process; signal: Signal }>();
  const list = useInside<{ processes: Process[] | null }>("processes", { every: 2000 });
  if (list.isPending) return <Loading />;
  if (!list.data) return <Problem error={list.error} retry={() => void list.refetch()} />;
  const order: Order = filters.order ?? "tree";
  const rows = ordered(list.data.processes ?? [], order);
  const name = (process: Process) => inertLine(commandLine(process.args ?? []) || `process ${process.pid}`).text;
  return (
    <>
      <div className="sb-bar">
        <label className="sb-inline">
          Order <Select label="Order" value={order} options={orders.map((one) => ({ value: one, label: one === "tree" ? "by parent" : one === "pid" ? "PID" : one === "cpu" ? "CPU" : one }))} onChange={(value) => set({ order: value === "tree" ? undefined : (value as Exclude<Order, "tree">) })} />
        </label>
        <span className="quiet" role="status">
          {rows.length === 1 ? "1 process" : `${rows.length} processes`}
        </span>
        {list.error && <Badge tone="warn">not current: the last attempt to read them failed</Badge>}
      </div>
      <Table<Placed<Process>>
        label="Processes" rows={rows} rowKey={({ process }) => String(process.pid)} rowLabel={({ process }) => `${process.pid} ${name(process)}`}
        empty={<Empty title="Nothing runs">No program was started, or all have ended.</Empty>}
        columns={[
          { id: "pid", header: "PID", width: "80px", cell: ({ process }) => <span className="mono">{process.pid}</span> },
          {
            id: "command", header: "Command",
            cell: ({ process, level }) => (
              <span className="mono sb-command" style={{ paddingInlineStart: Math.min(level, 12) * 16 }}>
                {level > 0 && <span className="quiet" aria-hidden="true">└ </span>}
                <Inert text={commandLine(process.args ?? []).slice(0, 1000) || "–"} />
                {process.terminal && <Badge tone="info" icon="terminal">terminal</Badge>}
              </span>
            ),
          },
          { id: "user", header: "User", width: "90px", cell: ({ process }) => (process.user ? <Inert text={process.user} /> : <span className="quiet">–</span>) },
          { id: "cpu", header: "CPU", width: "80px", align: "end", cell: ({ process }) => (process.cpu === undefined ? "–" : format.cores(process.cpu)) },
          { id: "memory", header: "Memory", width: "100px", align: "end", cell: ({ process }) => (process.memory === undefined ? "–" : format.bytes(process.memory)) },
          ...(can
            ? [
                {
                  id: "signal", header: "Signal", width: "48px", align: "end" as const,
                  cell: ({ process }: Placed<Process>) => (
                    <Menu
                      label={`Signal ${process.pid}`}
                      items={signals.map((signal) => ({ label: signal === "KILL" ? "Kill" : `Send ${signal}`, danger: signal === "KILL", onSelect: () => setPending({ process, signal }) }))}
                    />
                  ),
                },
              ]
            : []),
        ]}
      />
      <Confirm
        open={pending !== undefined} onOpenChange={() => setPending(undefined)} danger={pending?.signal === "KILL"}
        title={pending?.signal === "KILL" ? `Kill ${pending.process.pid}?` : `Send ${pending?.signal ?? ""} to ${pending?.process.pid ?? ""}?`} action={pending?.signal === "KILL" ? "Kill" : "Send"}
        what={
          pending && (
            <>
              <p className="mono">{name(pending.process).slice(0, 300)}</p>
              <p>{effectOf[pending.signal]}</p>
            </>
          )
        }
        onConfirm={async () => {
          if (!pending) return;
          await call("DELETE", inside(sandbox.id, `processes/${pending.process.pid}?signal=${pending.signal}`));
          await refresh("processes");
          toast(`${pending.signal} was sent to ${pending.process.pid}.`, { tone: "ok" });
        }}
      />
    </>
  );
}
