import { Link } from "@tanstack/react-router";
import type { FleetRow } from "../api/console";
import { Badge, Icon, Inert, Menu, type MenuItem, Time, useNow } from "../parts";
import { coarse } from "../parts/format";
import { type Act, acts } from "./bulk";
import { inertLine } from "../parts/inert";
import { plainTitle, title } from "./search";

/** The parts that a tile and a row of the table share. */
export interface SandboxProps {
  row: FleetRow;
  /** The sandbox's position among all that match the filter, from 0, and the number of these. */
  index: number;
  total: number;
  chosen: boolean;
  current: boolean;
  operator: boolean;
  onChoose: (id: string, on: boolean) => void;
  onAct: (act: Act, row: FleetRow) => void;
  onOpen: (row: FleetRow) => void;
}

/** The name of a sandbox for screen readers. */
export function sandboxLabel(row: FleetRow): string {
  return `${plainTitle(row)}, ${row.state}`;
}

export function SandboxName({ row }: { row: FleetRow }) {
  return (
    <Link to="/s/$id/$tab" params={{ id: row.id, tab: "live" }} className="fleet-name" tabIndex={-1} title={row.id}>
      <Inert text={title(row)} />
    </Link>
  );
}

export function Choose({ row, chosen, onChoose }: Pick<SandboxProps, "row" | "chosen" | "onChoose">) {
  return (
    <label className="fleet-choose">
      <input
        type="checkbox"
        tabIndex={-1}
        checked={chosen}
        aria-label={`Choose ${plainTitle(row)}`}
        onChange={(event) => onChoose(row.id, event.currentTarget.checked)}
      />
    </label>
  );
}

export function SandboxMenu({ row, operator, onAct, onOpen }: Pick<SandboxProps, "row" | "operator" | "onAct" | "onOpen">) {
  const items: MenuItem[] = [
    { label: "Open", onSelect: () => onOpen(row) },
    { label: "Copy ID", onSelect: () => void navigator.clipboard?.writeText(row.id) },
  ];
  if (operator) {
    for (const act of ["pause", "resume", "stop"] as const) {
      if (acts[act].isPossible(row)) items.push({ label: acts[act].label, danger: act === "stop", onSelect: () => onAct(act, row) });
    }
  }
  return <Menu label={`Actions of ${plainTitle(row)}`} items={items} />;
}

/** The reasons why the sandbox needs a person's attention, with text. */
export function Attention({ row }: { row: FleetRow }) {
  return (
    <span className="fleet-attention">
      {row.pending > 0 && (
        <Link to="/approvals" tabIndex={-1} className="fleet-waiting">
          <Badge tone="warn" icon="question">
            {row.pending} waiting
          </Badge>
        </Link>
      )}
      {row.oom && (
        <Badge tone="bad" icon="alert">
          out of memory
        </Badge>
      )}
      {row.denied > 0 && (
        <Badge tone="bad" icon="deny">
          {row.denied} denied
        </Badge>
      )}
      {row.attention > 0 && row.pending === 0 && row.denied === 0 && !row.oom && row.attention_why && (
        <Badge tone="quiet" icon="info">
          <Inert text={row.attention_why} />
        </Badge>
      )}
    </span>
  );
}

export function LastCommand({ row }: { row: FleetRow }) {
  const last = row.last_command;
  if (!last) return <span className="fleet-none quiet">nothing run yet</span>;
  const failed = typeof last.exit_code === "number" && last.exit_code !== 0;
  return (
    <span className="fleet-command" title={inertLine(last.text.slice(0, 500)).text}>
      <Icon name="chevron-right" size={12} />
      <code>
        <Inert text={last.text.slice(0, 300)} />
      </code>
      {failed && (
        <span className="fleet-exit">
          exit <b>{last.exit_code}</b>
        </span>
      )}
      <span className="quiet">
        <Time at={last.at} relative />
      </span>
    </span>
  );
}

/** The sandbox's age and remaining lifetime. */
export function Age({ row }: { row: FleetRow }) {
  const now = useNow(10_000);
  const remaining = row.ends_at ? Date.parse(row.ends_at) - now : null;
  return (
    <span className="fleet-age quiet" title={`created ${row.created_at}${row.ends_at ? `, ends ${row.ends_at}` : ""}`}>
      {coarse(Math.max(0, now - Date.parse(row.created_at)))}
      {remaining !== null && row.state !== "stopped" && row.state !== "paused" && ` · ${remaining > 0 ? `${coarse(remaining)} left` : "ends now"}`}
    </span>
  );
}

/** The sandbox's engine and boundary. */
export function Kind({ row }: { row: FleetRow }) {
  return (
    <span className="fleet-kind quiet" title={`${row.engine}: ${row.boundary}`}>
      <Inert text={row.template || "host tools"} /> · {row.level} · {row.boundary}
      {row.owner && (
        <>
          {" · "}
          <Inert text={row.owner} />
        </>
      )}
    </span>
  );
}
