import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { useSession } from "../../api/session";
import { useFlows, useLiveState } from "../../live";
import { Badge, Button, Empty, format, Icon, type IconName, Inert, inertLine, Loading, Problem, Toggle, Verdict } from "../../parts";
import { Lines } from "../lines";
import { isLive, useSandbox } from "../queries";
import { useFilters } from "../search";
import { useEntryLog } from "./history";
import { filtered, type Item, type Kind, kinds, merge } from "./timeline";

const Beside = lazy(async () => ({ default: (await import("../terminal/beside")).Beside }));

const icons: Record<Kind, IconName> = { commands: "terminal", files: "file", network: "network", approvals: "approvals", lifecycle: "box", people: "user" };

/** All events of a sandbox in one timeline, with a terminal beside it if there is room. */
export function LiveTab() {
  const sandbox = useSandbox();
  const log = useEntryLog(sandbox.id);
  const { flows } = useFlows(sandbox.id, { limit: 500 });
  const [filters, set] = useFilters();
  const state = useLiveState();
  const wide = useWide("(min-width: 1280px)");
  const shownKinds = useMemo(() => (filters.show ? (filters.show.split(",") as Kind[]) : []), [filters.show]);
  const all = useMemo(() => merge(log.entries, log.paused ? [] : flows), [log.entries, log.paused, flows]);
  const items = useMemo(() => filtered(all, shownKinds, filters.programs === true), [all, shownKinds, filters.programs]);
  const toggle = (kind: Kind) => {
    const next = shownKinds.includes(kind) ? shownKinds.filter((one) => one !== kind) : [...shownKinds, kind];
    set({ show: next.length === 0 || next.length === kinds.length ? undefined : next.join(",") });
  };
  return (
    <div className={wide && isLive(sandbox) ? "sb-live sb-live-wide" : "sb-live"}>
      <section className="sb-column" aria-label="Activity">
        <div className="sb-bar">
          <div className="sb-chips" role="group" aria-label="Show">
            {kinds.map((kind) => (
              <button key={kind} type="button" className="sb-chip" aria-pressed={shownKinds.includes(kind)} onClick={() => toggle(kind)}>
                <Icon name={icons[kind]} size={13} />
                {kind}
              </button>
            ))}
          </div>
          <Toggle label="Every program" on={filters.programs === true} onChange={(on) => set({ programs: on || undefined })} />
          <Button icon={log.paused ? "play" : "pause"} aria-pressed={log.paused} onClick={() => log.setPaused(!log.paused)}>
            {log.paused ? `Continue${log.held > 0 ? ` (${log.held} new)` : ""}` : "Pause live"}
          </Button>
        </div>
        {log.gap !== null && <p className="sb-note">There were too many events to follow. They were read again from the audit log.</p>}
        {state === "offline" && <p className="sb-note">The server cannot be reached. The data on the page may be old.</p>}
        {log.error ? (
          <Problem error={log.error} retry={log.retry} />
        ) : log.loading ? (
          <Loading what="Reading the audit log" />
        ) : (
          <Lines
            items={items} keyOf={(item) => item.key} label="Activity" height={31} follow
            empty={<Empty title="Nothing yet">{shownKinds.length > 0 ? "No event of these kinds has happened." : "Events of the sandbox appear here as they happen."}</Empty>}
          >
            {(item) => <Row item={item} id={sandbox.id} />}
          </Lines>
        )}
        <Announcer items={all} quiet={log.paused} />
      </section>
      {wide && isLive(sandbox) && (
        <Suspense fallback={<Loading />}>
          <Beside />
        </Suspense>
      )}
    </div>
  );
}

function Row({ item, id }: { item: Item; id: string }) {
  const [open, setOpen] = useState(false);
  return (
    <div className={`sb-event sb-event-${item.tone}${item.nested ? " sb-nested" : ""}`}>
      <Clock time={item.time} />
      <span className="sb-kind" title={item.kind}>
        <Icon name={icons[item.kind]} size={13} />
        <span>
          <Inert text={item.label} />
        </span>
      </span>
      <span className="sb-title mono" title={inertLine(item.title).text}>
        <Inert text={item.title.slice(0, 2000)} />
        {item.more && (
          <button type="button" className="sb-more" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "fewer" : `and ${item.more.length} more`}
          </button>
        )}
        {open && (
          <ul className="sb-more-list">
            {item.more?.slice(0, 500).map((path) => (
              <li key={path}>
                <Inert text={path} />
              </li>
            ))}
          </ul>
        )}
      </span>
      <span className="sb-detail">
        {item.effect && item.kind === "network" && <Verdict effect={item.effect} />}
        {item.tone !== "quiet" && !item.effect && item.detail ? (
          <Badge tone={item.tone}>
            <Inert text={item.detail} />
          </Badge>
        ) : (
          <span className="quiet" title={item.why && inertLine(item.why).text}>
            <Inert text={item.detail} />
          </span>
        )}
        {item.actor && ["people", "approvals", "lifecycle"].includes(item.kind) && !["box", "server", "token"].includes(item.actor) && (
          <Actor name={item.actor} />
        )}
        {item.recording !== undefined && (
          <Link to="/s/$id/$tab" params={{ id, tab: "terminal" }} search={{ replay: item.recording }}>
            Replay
          </Link>
        )}
      </span>
      {item.seq === undefined ? (
        <span className="sb-seq quiet">…</span>
      ) : (
        <Link className="sb-seq" to="/record/$seq" params={{ seq: String(item.seq) }} aria-label={`Entry ${item.seq} of the audit log`}>
          #{item.seq}
        </Link>
      )}
    </div>
  );
}

/** The actor, shortened: sessions and keys have long names. */
function Actor({ name }: { name: string }) {
  const session = useSession();
  const mine = session !== undefined && name === `console:${session.id}`;
  return (
    <span className="quiet sb-actor" title={inertLine(name).text}>
      {mine ? "you" : <Inert text={name.length > 14 ? `${name.slice(0, 13)}…` : name} />}
    </span>
  );
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** The time of day. As everywhere, the date is shown on hover. */
export function Clock({ time }: { time: string }) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return <span className="sb-clock quiet">–</span>;
  return (
    <time className="sb-clock quiet mono" dateTime={time} title={`${date.toLocaleString()} · ${format.utc(date)}`}>
      {clock.format(date)}
    </time>
  );
}

/**
 * Announces every few seconds how many events arrived, so that a screen reader does not read every
 * line.
 */
function Announcer({ items, quiet }: { items: readonly Item[]; quiet: boolean }) {
  const [text, setText] = useState("");
  const newest = useRef(items);
  const announced = useRef<number | undefined>(undefined);
  newest.current = items;
  useEffect(() => {
    if (quiet) return;
    const timer = setInterval(() => {
      const all = newest.current;
      const from = announced.current;
      const newItems = from === undefined ? [] : all.filter((item) => (item.seq ?? 0) > from);
      announced.current = all.reduce((max, item) => Math.max(max, item.seq ?? 0), from ?? 0);
      const denied = newItems.filter((item) => item.effect === "deny").length;
      if (newItems.length > 0) setText(`${newItems.length} new ${newItems.length === 1 ? "event" : "events"}${denied > 0 ? `, ${denied} denied` : ""}`);
    }, 8000);
    return () => clearInterval(timer);
  }, [quiet]);
  return (
    <p className="sb-hidden" role="status">
      {text}
    </p>
  );
}

export function useWide(query: string): boolean {
  const [wide, setWide] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const changed = () => setWide(list.matches);
    changed();
    list.addEventListener("change", changed);
    return () => list.removeEventListener("change", changed);
  }, [query]);
  return wide;
}
