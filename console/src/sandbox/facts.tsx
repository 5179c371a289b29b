import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { unwrap, api } from "../api/client";
import { asProblem } from "../api/problem";
import { useMetrics, useWatch } from "../live";
import { Badge, Bytes, Can, CopyText, format, Inert, Menu, Sparkline, Time, toast, useNow } from "../parts";
import { hasEnded, isLive, useRefresh, useSandbox } from "./queries";

/** The properties of a sandbox, in one band below its name. */
export function Facts() {
  const sandbox = useSandbox();
  return (
    <section className="sb-facts" aria-label="Facts">
      <dl>
        <Fact name="ID">
          <CopyText text={sandbox.id} />
        </Fact>
        <Fact name="Level">
          {sandbox.network.level || "–"} <span className="quiet">on {sandbox.engine}</span>
        </Fact>
        <Fact name="Boundary">
          <Badge tone={boundaryTone(sandbox.boundary)} icon="lock" title="The boundary: what separates it from the host">
            {sandbox.boundary}
          </Badge>
        </Fact>
        <Fact name="Network" minor>{sandbox.network.lost ? <Badge tone="bad">lost</Badge> : sandbox.network.attached ? sandbox.network.net : "none"}</Fact>
        <Fact name="Template" minor>
          <Inert text={sandbox.template} />
        </Fact>
        <Fact name="Owner" minor>{sandbox.owner ? <code>{sandbox.owner}</code> : "local"}</Fact>
        <Fact name="Started" minor>
          <Time at={sandbox.started_at} relative />
        </Fact>
        <Fact name={hasEnded(sandbox) ? "Ended" : "Time left"}>
          <TimeLeft />
        </Fact>
      </dl>
      {isLive(sandbox) && <Meters />}
    </section>
  );
}

function Fact({ name, minor, children }: { name: string; minor?: boolean; children: ReactNode }) {
  return (
    <div className={minor ? "sb-fact sb-minor" : "sb-fact"}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function boundaryTone(boundary: string) {
  if (boundary === "own-kernel" || boundary === "userspace-kernel") return "ok";
  return boundary === "shared-kernel" || boundary === "wasm-runtime" ? "warn" : "bad";
}

const extensions = [
  ["15 minutes", 900],
  ["1 hour", 3600],
  ["8 hours", 28_800],
] as const;

function TimeLeft() {
  const sandbox = useSandbox();
  const refresh = useRefresh();
  const now = useNow(1000);
  if (hasEnded(sandbox)) {
    return (
      <>
        {sandbox.stopped_at && <Time at={sandbox.stopped_at} relative />} {sandbox.reason && <Badge tone={sandbox.reason === "killed" || sandbox.reason === "exited" ? "quiet" : "bad"}>{sandbox.reason}</Badge>}
      </>
    );
  }
  if (sandbox.state === "paused") return <>paused</>;
  const left = sandbox.ends_at ? Date.parse(sandbox.ends_at) - now : undefined;
  const extend = async (seconds: number, label: string) => {
    try {
      await unwrap(api.POST("/v1/sandboxes/{id}/extend", { params: { path: { id: sandbox.id } }, body: { seconds } }));
      await refresh();
      toast(`It runs for at least ${label} more.`, { tone: "ok" });
    } catch (thrown) {
      toast(asProblem(thrown).text, { tone: "bad" });
    }
  };
  return (
    <span className="sb-left">
      {left === undefined ? "no end" : <span className={left < 60_000 ? "sb-soon" : undefined}>{format.countdown(left)}</span>}
      {left !== undefined && sandbox.on_end?.pause && <span className="quiet"> then paused</span>}
      {left !== undefined && isLive(sandbox) && (
        <Can scope="operator">
          <Menu
            label="Extend"
            icon="clock"
            head={<span className="quiet">Runs for at least</span>}
            items={extensions.map(([label, seconds]) => ({ label, onSelect: () => void extend(seconds, label) }))}
          />
        </Can>
      )}
    </span>
  );
}

function Meters() {
  const sandbox = useSandbox();
  useWatch([sandbox.id]);
  const { cpu, memory, egress, latest } = useMetrics(sandbox.id);
  const cores = (sandbox.effective.cpu_millis ?? 1000) / 1000;
  return (
    <div className="sb-meters">
      <Meter name="CPU" points={cpu} max={cores} value={latest ? format.cores(latest.cpu) : "–"} />
      <Meter name="Memory" points={memory} max={latest?.memory_limit ?? sandbox.effective.memory_bytes ?? 0} value={latest ? <Bytes n={latest.memory} /> : "–"} text={latest ? format.bytes(latest.memory) : "–"} />
      <Meter name="Egress" points={egress} value={latest ? `${format.bytes(latest.egress)}/s` : "–"} />
      {latest !== undefined && latest.denied > 0 && (
        <Link to="/s/$id/$tab" params={{ id: sandbox.id, tab: "network" }} search={{ verdict: "denied" }} className="sb-denied">
          <Badge tone="bad" icon="deny">
            {latest.denied} denied in the last minute
          </Badge>
        </Link>
      )}
    </div>
  );
}

function Meter({ name, points, max, value, text }: { name: string; points: number[]; max?: number; value: ReactNode; text?: string }) {
  return (
    <div className="sb-meter">
      <span className="quiet">{name}</span>
      <Sparkline points={points} label={`${name} in the last minute, now ${text ?? String(value)}`} {...(max ? { max } : {})} />
      <span className="sb-meter-now">{value}</span>
    </div>
  );
}
