/** The audit log, live, with the proof that it was not changed. */
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { useEntries, useLiveState } from "../live";
import { Button, Can, Empty, Loading, Page, Problem } from "../parts";
import { Detail } from "./detail";
import { isFiltered, matchesFilter, queryOf, readSearch, filtersInBrowser, withChange, type RecordSearch } from "./filter";
import { Filters } from "./filters";
import { Line } from "./line";
import { merge } from "./pages";
import { exportURL, useOlder, type Older } from "./read";
import "./record.css";
import { useVerification, VerificationPanel } from "./verification";

export function RecordPage() {
  const raw: Record<string, unknown> = useSearch({ strict: false });
  const { seq } = useParams({ strict: false }) as { seq?: string };
  const key = JSON.stringify(readSearch(raw));
  const search = useMemo(() => JSON.parse(key) as RecordSearch, [key]);
  // A duration such as 2h is resolved once, when it is chosen. If it moved with the clock, the list
  // would be loaded again and again.
  const { query, errors } = useMemo(() => queryOf(search, Date.now()), [search]);
  const verification = useVerification();
  const [panel, setPanel] = useState(false);
  const open = seq !== undefined && /^\d+$/.test(seq) ? Number(seq) : null;
  const run = () => {
    setPanel(true);
    void verification.run();
  };
  return (
    <Page
      title="Audit log"
      actions={
        <>
          <Button icon="policy" busy={verification.busy} aria-expanded={panel} onClick={run}>
            Verify
          </Button>
          <Can scope="admin">
            <a className="p-button p-button-plain" href={exportURL(query)} download="record.jsonl" title={filtersInBrowser(search) ? "The export is filtered by sandbox, kind and time, and not by text or actor" : undefined}>
              Export
            </a>
          </Can>
        </>
      }
    >
      {panel && <VerificationPanel v={verification} />}
      <Filters search={search} errors={errors} />
      <div className="r-split" data-open={open !== null || undefined}>
        <Entries search={search} query={query} open={open} />
        {open !== null && <Detail key={open} seq={open} search={search} />}
        {seq !== undefined && open === null && <Empty title="This is not the number of an entry" />}
      </div>
    </Page>
  );
}

const maxLive = 1000;
// After this delay, in milliseconds, the stream delivers the topics of this page.
const catchUpDelay = 1500;

function Entries({ search, query, open }: { search: RecordSearch; query: ReturnType<typeof queryOf>["query"]; open: number | null }) {
  const older = useOlder(search, query);
  const live = useEntries(null, { limit: maxLive });
  const navigate = useNavigate();
  const { setPaused } = live;
  const [reloadedGap, setReloadedGap] = useState<string | null>(null);
  const paused = search.paused === true;
  useEffect(() => setPaused(paused), [paused, setPaused]);
  const state = useLiveState();
  const { catchUp } = older;
  useEffect(() => {
    if (paused || state !== "live") return;
    const timer = setTimeout(catchUp, catchUpDelay);
    return () => clearTimeout(timer);
  }, [catchUp, paused, state]);

  // The filter may contain a sandbox's name; entries have its ID.
  const id = search.sandbox ? (older.entries[0]?.sandbox ?? search.sandbox) : undefined;
  const entries = useMemo(() => {
    const filter: RecordSearch = id ? { ...search, sandbox: id } : search;
    return merge(older.entries, live.entries.filter((e) => matchesFilter(e, filter, query)));
  }, [older.entries, live.entries, search, query, id]);

  return (
    <section className="r-entries" aria-label="Entries">
      <div className="r-bar">
        <p className="quiet" role="status">
          {paused ? `Paused${live.held > 0 ? `, ${live.held} new` : ""}` : "New entries appear at the top"}
        </p>
        <Button
          variant="quiet"
          icon={paused ? "play" : "pause"}
          onClick={() => void navigate({ to: ".", search: withChange(search, { paused: paused ? undefined : true }), replace: true })}
        >
          {paused ? "Continue" : "Pause"}
        </Button>
      </div>
      {live.gap && live.gap !== reloadedGap && (
        <p className="r-gap" role="status">
          {live.gap}{" "}
          <Button variant="quiet" icon="refresh" onClick={() => (setReloadedGap(live.gap), older.reload())}>
            Read again
          </Button>
        </p>
      )}
      <ol className="r-lines" aria-label="Entries, the newest first">
        {entries.map((e) => (
          <Line key={e.seq} entry={e} open={e.seq === open} search={search} />
        ))}
      </ol>
      <End older={older} search={search} none={entries.length === 0} />
    </section>
  );
}

function End({ older, search, none }: { older: Older; search: RecordSearch; none: boolean }) {
  if (older.busy) return <Loading what={filtersInBrowser(search) ? "Searching" : "Loading"} />;
  if (older.error !== undefined) return <Problem error={older.error} retry={older.more} />;
  if (older.before !== null) {
    return (
      <p className="r-end">
        {filtersInBrowser(search) && <span className="quiet">Searched back to entry {older.before}. </span>}
        <Button onClick={older.more}>{filtersInBrowser(search) ? "Search further back" : "Show older entries"}</Button>
      </p>
    );
  }
  if (none) return <Empty title={isFiltered(search) ? "No entry matches" : "The audit log has no entries yet"} />;
  return <p className="r-end quiet">The audit log begins here.</p>;
}
