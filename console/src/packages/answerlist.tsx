import { Link } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { useEntries, useLiveState } from "../live";
import { Badge, Button, Empty, Inert, Loading, Problem, Select, Table, Time, type Column, type Tone } from "../parts";
import { merge } from "../record/pages";
import { useOlder } from "../record/read";
import { answerOf, matchesAnswer, sourceOf, type Answer } from "./answers";
import { nameOf } from "./cache";
import { FilterBar, type FilterProps } from "./filterbar";
import { verdicts, type Verdict } from "./search";

// The server applies this part of the filter.
const query = { kind: "flow" };
const maxLive = 500;
// After this delay, in milliseconds, the stream delivers the topics of this page.
const catchUpDelay = 1500;

/** The newest answers of the gate, live, from the audit log. */
export function Answers({ search, change, input }: FilterProps) {
  const { q = "", ecosystem = "", verdict } = search;
  const filter = useMemo(() => {
    const wanted = { q, ecosystem, ...(verdict ? { verdict } : {}) };
    return { key: JSON.stringify(wanted), matches: (e: Parameters<typeof matchesAnswer>[0]) => matchesAnswer(e, wanted) };
  }, [q, ecosystem, verdict]);
  const older = useOlder({}, query, filter);
  const live = useEntries(null, { limit: maxLive });
  const state = useLiveState();
  const { catchUp } = older;
  // The stream may have begun after the list was read.
  useEffect(() => {
    if (state !== "live") return;
    const timer = setTimeout(catchUp, catchUpDelay);
    return () => clearTimeout(timer);
  }, [catchUp, state]);
  const answers = useMemo(
    () => merge(older.entries, live.entries.filter(filter.matches)).map(answerOf).filter((a): a is Answer => a !== null),
    [older.entries, live.entries, filter],
  );
  const isFiltered = q !== "" || ecosystem !== "" || verdict !== undefined;
  return (
    <section className="p-stack pk-list" aria-label="Answers">
      <FilterBar {...{ search, change, input }} ecosystems={ecosystems} placeholder="Filter by package, rule, reason or sandbox">
        <Select
          label="Verdict"
          value={verdict ?? ""}
          options={[{ value: "", label: "All verdicts" }, ...verdicts]}
          onChange={(value) => change({ verdict: (value || undefined) as Verdict | undefined })}
        />
      </FilterBar>
      {live.gap && (
        <p role="status">
          {live.gap}{" "}
          <Button variant="quiet" icon="refresh" onClick={older.reload}>
            Read again
          </Button>
        </p>
      )}
      {answers.length > 0 && <Table label="Answers of the gate, the newest first" columns={columns} rows={answers} rowKey={(a) => String(a.seq)} rowLabel={(a) => `${a.verdict} ${nameOf(a)}`} />}
      {older.busy ? (
        <Loading what="Searching" />
      ) : older.error !== undefined ? (
        <Problem error={older.error} retry={older.more} />
      ) : older.before !== null ? (
        <p className="pk-more">
          <span className="quiet">Searched back to entry {older.before}. </span>
          <Button onClick={older.more}>Search further back</Button>
        </p>
      ) : (
        answers.length === 0 && (
          <Empty title={isFiltered ? "No answer matches" : "No answers yet"}>
            {!isFiltered && <p>The answers to sandboxes whose policy has packages.cache appear here.</p>}
          </Empty>
        )
      )}
    </section>
  );
}

const ecosystems = ["apt", "crates", "go", "maven", "npm", "pypi"];

const tones: Record<Verdict, Tone> = { passed: "ok", filtered: "info", unverified: "warn", refused: "bad" };

const columns: Column<Answer>[] = [
  {
    id: "time",
    header: "Time",
    cell: (a) => (
      <Link to="/record/$seq" params={{ seq: String(a.seq) }} search={query} title="The entry of the audit log">
        <Time at={a.time} relative />
      </Link>
    ),
  },
  { id: "verdict", header: "Verdict", cell: (a) => <Badge tone={tones[a.verdict]}>{a.verdict}</Badge> },
  {
    id: "name",
    header: "Package",
    cell: (a) => (
      <>
        <span className="quiet">
          <Inert text={a.ecosystem} />:
        </span>
        <Inert text={a.name} />
      </>
    ),
  },
  { id: "version", header: "Version", cell: (a) => (a.version ? <Inert text={a.version} /> : <span className="quiet">document</span>) },
  { id: "source", header: "From", cell: (a) => sourceOf(a) },
  { id: "rule", header: "Rule", cell: (a) => <Why answer={a} /> },
  {
    id: "sandbox",
    header: "Sandbox",
    cell: (a) =>
      a.sandbox && (
        <Link to="/s/$id/$tab" params={{ id: a.sandbox, tab: "network" }}>
          <Inert text={a.sandbox} />
        </Link>
      ),
  },
];

function Why({ answer: a }: { answer: Answer }) {
  return (
    <span className="pk-why">
      <span className="mono">
        <Inert text={a.rule} />
      </span>
      {a.reason && <Inert text={a.reason} />}
      {a.withheld.length > 0 && (
        <span>
          Withheld: <Inert text={a.withheld.join(", ")} />
        </span>
      )}
      {a.scripts.length > 0 && (
        <span>
          Install scripts: <Inert text={a.scripts.join(", ")} />
        </span>
      )}
      {a.findings.length > 0 && (
        <span>
          Findings: <Inert text={a.findings.join("; ")} />
        </span>
      )}
    </span>
  );
}
