import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { base, read } from "../../api/client";
import { Badge, Button, CopyText, Empty, format, inertLine, Loading, Problem, Select, Toggle } from "../../parts";
import { type Cast, parseCast, shortened } from "./cast";
import { Player, type PlayerState } from "./player";
import { TerminalTools } from "./toolbar";
import { XTerm } from "./xterm";

const speeds = ["0.5", "1", "2", "4", "8", "16"].map((value) => ({ value, label: `${value}×` }));

/** The longest pause without output when idle times are skipped. */
const maxIdle = 1;

/** The output of a command, at its original pace. */
export function Replay({ id, n, tty }: { id: string; n: number; tty: boolean }) {
  const path = `${base}/v1/sandboxes/${encodeURIComponent(id)}/recordings/${n}`;
  const recording = useQuery({
    queryKey: ["recording", id, n],
    queryFn: async ({ signal }) => parseCast(await read<string>(await fetch(path, { credentials: "same-origin", signal }))),
    retry: false,
    gcTime: 60_000,
  });
  if (recording.isPending) return <Loading what="Reading the recording" />;
  if (!recording.data) return <Problem error={recording.error} retry={() => void recording.refetch()} />;
  if (recording.data.events.length === 0) return <Empty title="It printed nothing">{recording.data.cut ? "The recording was cut short." : undefined}</Empty>;
  return <RecordingView cast={recording.data} plain={!tty} n={n} reload={() => void recording.refetch()} />;
}

function RecordingView({ cast, plain, n, reload }: { cast: Cast; plain: boolean; n: number; reload: () => void }) {
  const screenElement = useRef<HTMLDivElement>(null);
  const screen = useRef<XTerm>(null);
  const player = useRef<Player>(null);
  const play = useRef<HTMLButtonElement>(null);
  const [skip, setSkip] = useState(true);
  const [state, setState] = useState<PlayerState>();
  const used = useMemo(() => (skip ? shortened(cast, maxIdle) : cast), [cast, skip]);

  useEffect(() => {
    if (!screenElement.current) return;
    const term = new XTerm(screenElement.current, `Recording ${n}`, { plain, onLeave: () => play.current?.focus() });
    screen.current = term;
    let size = { cols: used.cols, rows: used.rows };
    const show = (cols: number, rows: number) => {
      size = { cols, rows };
      term.show(cols, rows);
    };
    const created = new Player(
      used,
      {
        reset: (cols, rows) => {
          term.terminal.reset();
          show(cols, rows);
        },
        write: (text) => term.terminal.write(text),
        resize: show,
      },
      setState,
    );
    player.current = created;
    term.onResize(() => term.show(size.cols, size.rows));
    // All output is shown until the user plays the recording.
    created.seek(used.duration);
    return () => {
      created.close();
      term.close();
    };
  }, [used, plain, n]);

  const at = state?.at ?? 0;
  return (
    <section className="sb-term" aria-label={`Recording ${n}`}>
      <div className="sb-bar sb-player">
        <Button ref={play} variant="primary" icon={state?.playing ? "pause" : "play"} onClick={() => (state?.playing ? player.current?.pause() : player.current?.play())}>
          {state?.playing ? "Pause replay" : "Play"}
        </Button>
        <input
          type="range" aria-label="Position" min={0} max={used.duration} step={0.05} value={at}
          aria-valuetext={`${seconds(at)} of ${seconds(used.duration)}`}
          onChange={(event) => player.current?.seek(event.currentTarget.valueAsNumber)}
        />
        <span className="mono quiet">
          {seconds(at)} / {seconds(used.duration)}
        </span>
        <Select label="Speed" value={String(state?.speed ?? 1)} options={speeds} onChange={(value) => player.current?.setSpeed(Number(value))} />
        <Toggle label="Skip idle times" on={skip} onChange={setSkip} />
      </div>
      <div className="sb-bar sb-notes">
        {cast.startedAt !== undefined && <span className="quiet">{format.localTime(new Date(cast.startedAt))}</span>}
        {state?.exit !== undefined && <Badge tone={state.exit === "0" ? "ok" : "bad"}>exit {state.exit}</Badge>}
        {cast.cut && (
          <>
            <Badge tone="warn">it still runs, or was cut short</Badge>
            <Button onClick={reload}>Read again</Button>
          </>
        )}
        {/* Copied as one line of plain text: a line end in it would run what is pasted. */}
        {cast.command && <CopyText text={inertLine(cast.command).text} label={cast.command.slice(0, 120)} />}
      </div>
      <div className="sb-screen" ref={screenElement} />
      <TerminalTools screen={screen} />
    </section>
  );
}

function seconds(at: number): string {
  return `${Math.floor(at / 60)}:${(at % 60).toFixed(1).padStart(4, "0")}`;
}
