import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../../api/client";
import { Badge, Bytes, Empty, format, Inert, Loading, Problem, Time } from "../../parts";
import { commandLine } from "../live/data";
import { isLive, useInside, useSandbox } from "../queries";
import { useFilters } from "../search";
import { Attached, type TerminalInfo } from "./attached";
import { OpenTerminal } from "./open";
import { Replay } from "./replay";

/** The terminals of a sandbox, and the recordings of its commands. */
export function TerminalTab() {
  const sandbox = useSandbox();
  const running = isLive(sandbox);
  const [filters, set] = useFilters();
  const terminals = useInside<{ terminals: TerminalInfo[] | null }>("terminals", { every: 3000 });
  const recordings = useQuery({
    queryKey: ["recordings", sandbox.id],
    queryFn: async () => (await unwrap(api.GET("/v1/sandboxes/{id}/recordings", { params: { path: { id: sandbox.id } } }))).recordings ?? [],
    refetchInterval: running ? 5000 : false,
  });
  const open = terminals.data?.terminals ?? [];
  const newestFirst = [...(recordings.data ?? [])].reverse();
  const replayed = filters.replay;
  const pid = replayed === undefined ? (filters.terminal ?? (running ? open[0]?.pid : undefined)) : undefined;
  const info = open.find((one) => one.pid === pid);
  return (
    <div className={replayed === undefined && pid === undefined ? "sb-split" : "sb-split sb-split-main-first"}>
      <nav className="sb-side" aria-label="Terminals and recordings">
        {running && (
          <section>
            <header>
              <h2>Terminals</h2>
              <OpenTerminal />
            </header>
            {terminals.error && !terminals.data && <Problem error={terminals.error} retry={() => void terminals.refetch()} />}
            {terminals.data && open.length === 0 && <p className="quiet">None is open.</p>}
            <ul className="sb-picks" aria-label="Terminals">
              {open.map((one) => (
                <li key={one.pid}>
                  <button type="button" aria-current={pid === one.pid || undefined} onClick={() => set({ terminal: one.pid, replay: undefined }, true)}>
                    <span className="mono">
                      <Inert text={commandLine(one.command ?? []) || "shell"} />
                    </span>
                    <span className="quiet">
                      {one.pid} · {one.viewers === 1 ? "1 viewer" : `${one.viewers} viewers`}
                      {one.controller && (
                        <>
                          {" "}
                          · <Inert text={one.mine ? "you have control" : `${one.controller} has control`} />
                        </>
                      )}
                    </span>
                  </button>
                </li>
              ))}
            </ul>
          </section>
        )}
        <section>
          <header>
            <h2>Recordings</h2>
          </header>
          {recordings.isPending && <Loading />}
          {recordings.error && !recordings.data && <Problem error={recordings.error} retry={() => void recordings.refetch()} />}
          {recordings.data && newestFirst.length === 0 && <p className="quiet">No command was run yet.</p>}
          <ul className="sb-picks" aria-label="Recordings">
            {newestFirst.slice(0, 300).map((one) => (
              <RecordingItem key={one.id} recording={one} current={replayed === Number(one.id)} choose={() => set({ replay: Number(one.id), terminal: undefined }, true)} />
            ))}
          </ul>
          {newestFirst.length > 300 && <p className="quiet">The newest 300 of {newestFirst.length} are listed.</p>}
        </section>
      </nav>
      <div className="sb-main">
        {replayed !== undefined ? (
          <Replay key={replayed} id={sandbox.id} n={replayed} tty={newestFirst.find((one) => Number(one.id) === replayed)?.tty ?? true} />
        ) : pid !== undefined && running ? (
          <Attached key={pid} pid={pid} viewers={info?.viewers} />
        ) : (
          <Empty title={running ? "No terminal is open" : "The terminals have ended"}>
            {newestFirst.length > 0 ? "Choose a recording to see what a command printed." : undefined}
          </Empty>
        )}
      </div>
    </div>
  );
}

function RecordingItem({ recording, current, choose }: { recording: Schemas["Recording"]; current: boolean; choose: () => void }) {
  const took = recording.ended_at ? Date.parse(recording.ended_at) - Date.parse(recording.started_at) : undefined;
  return (
    <li>
      <button type="button" aria-current={current || undefined} disabled={recording.dropped} onClick={choose}>
        <span className="mono">
          <Inert text={commandLine(recording.command ?? []).slice(0, 300) || recording.how} />
        </span>
        <span className="quiet">
          {recording.id} · {recording.how === "start" ? "command" : recording.how} · <Time at={recording.started_at} relative /> · {took === undefined ? "runs" : format.duration(took)} ·{" "}
          <Bytes n={recording.bytes} />
        </span>
        <span>
          {recording.exit_code !== undefined && <Badge tone={recording.exit_code === 0 ? "ok" : "bad"}>exit {recording.exit_code}</Badge>}
          {recording.error && (
            <Badge tone="bad">
              <Inert text={recording.error} />
            </Badge>
          )}
          {recording.lost && (recording.how === "connect" ? <Badge tone="quiet">left</Badge> : <Badge tone="warn">end not received</Badge>)}
          {recording.truncated && <Badge tone="warn">truncated</Badge>}
          {recording.dropped && <Badge tone="quiet">no longer stored</Badge>}
        </span>
      </button>
    </li>
  );
}
