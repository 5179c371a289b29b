import { Link, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { Badge, Button, CopyText, IconButton, Inert, inert, Loading, Problem, Time } from "../parts";
import { summaryOf, toneOf, type Entry } from "./entry";
import type { RecordSearch } from "./filter";
import { checkProof, type CheckedProof, type Proof } from "./proof";
import { useEntry, useProof } from "./read";

/** One entry with all of its data and the proof that it is in the audit log. */
export function Detail({ seq, search }: { seq: number; search: RecordSearch }) {
  const found = useEntry(seq);
  const navigate = useNavigate();
  const close = () => void navigate({ to: "/record", search });
  return (
    <aside className="r-detail" aria-label={`Entry ${seq}`}>
      <header className="r-detail-head">
        <h2>Entry {seq}</h2>
        <span className="r-steps">
          <EntryLink to={seq - 1} search={search} label="Previous entry" icon="chevron-up" />
          <EntryLink to={seq + 1} search={search} label="Next entry" icon="chevron-down" />
          <IconButton icon="close" label="Close entry" onClick={close} />
        </span>
      </header>
      {found.error ? <Problem error={found.error} retry={() => void found.refetch()} /> : found.isPending ? <Loading /> : found.data ? <Body entry={found.data} /> : <MissingEntry seq={seq} />}
    </aside>
  );
}

function EntryLink({ to, search, label, icon }: { to: number; search: RecordSearch; label: string; icon: "chevron-up" | "chevron-down" }) {
  const navigate = useNavigate();
  return <IconButton icon={icon} label={label} disabled={to < 0} onClick={() => void navigate({ to: "/record/$seq", params: { seq: String(to) }, search })} />;
}

function MissingEntry({ seq }: { seq: number }) {
  return <p className="quiet">There is no entry {seq}: it has not been written yet, or was removed when the audit log reached its size limit.</p>;
}

function Body({ entry }: { entry: Entry }) {
  return (
    <>
      <p className="r-summary">
        <Badge tone={toneOf(entry)}>{entry.kind}</Badge> <Inert text={summaryOf(entry).slice(0, 2000)} />
      </p>
      <dl className="r-facts">
        <dt>Time</dt>
        <dd>
          <Time at={entry.time} />
        </dd>
        {entry.sandbox && (
          <>
            <dt>Sandbox</dt>
            <dd>
              <Link to="/s/$id/$tab" params={{ id: entry.sandbox, tab: "live" }}>
                <Inert text={entry.sandbox} />
              </Link>
            </dd>
          </>
        )}
        {entry.actor && (
          <>
            <dt>Actor</dt>
            <dd>
              <Inert text={entry.actor} />
            </dd>
          </>
        )}
        {entry.source && (
          <>
            <dt>Source</dt>
            <dd>
              <Inert text={`${entry.source} at ${entry.at ?? 0}`} />
            </dd>
          </>
        )}
        <dt>Previous hash</dt>
        <dd>{entry.prev ? <CopyText text={entry.prev} label={`${entry.prev.slice(0, 16)}…`} /> : "none: this is the first entry"}</dd>
      </dl>
      {entry.data !== undefined && entry.data !== null && (
        <section aria-label="Data">
          <h3>Data</h3>
          <div className="r-data">
            <Value value={entry.data} />
          </div>
        </section>
      )}
      <ProofOf key={entry.seq} entry={entry} />
    </>
  );
}

/** Data as an outline. A program may have chosen any of its text. */
function Value({ value }: { value: unknown }) {
  if (Array.isArray(value)) {
    if (value.length === 0) return <span className="quiet">none</span>;
    return (
      <ol className="r-list">
        {value.map((v, i) => (
          <li key={i}>
            <Value value={v} />
          </li>
        ))}
      </ol>
    );
  }
  if (typeof value === "object" && value !== null) {
    return (
      <dl className="r-facts">
        {Object.entries(value).map(([name, v]) => (
          <Pair key={name} name={name} value={v} />
        ))}
      </dl>
    );
  }
  if (typeof value === "string") return <Inert text={value} block={value.includes("\n")} />;
  return <span className="r-scalar">{String(value)}</span>;
}

function Pair({ name, value }: { name: string; value: unknown }) {
  return (
    <>
      <dt>
        <Inert text={name.replaceAll("_", " ")} />
      </dt>
      <dd>
        <Value value={value} />
      </dd>
    </>
  );
}

function ProofOf({ entry }: { entry: Entry }) {
  const [requested, setRequested] = useState(false);
  const proof = useProof(entry.seq, requested);
  return (
    <section aria-label="Proof">
      <h3>Proof</h3>
      {!requested && (
        <Button icon="policy" onClick={() => setRequested(true)}>
          Prove this entry
        </Button>
      )}
      {requested && proof.isPending && <Loading what="Requesting the proof" />}
      {proof.error && <Problem error={proof.error} retry={() => void proof.refetch()} />}
      {proof.data && <ProofResult proof={proof.data} />}
    </section>
  );
}

function ProofResult({ proof }: { proof: Proof }) {
  const [checked, setChecked] = useState<CheckedProof | null>(null);
  useEffect(() => {
    let unmounted = false;
    void checkProof(proof).then((c) => {
      if (!unmounted) setChecked(c);
    });
    return () => {
      unmounted = true;
    };
  }, [proof]);
  if (!checked) return <Loading what="Checking the proof" />;
  const bad = checked.included === false || checked.signed === false;
  return (
    <div className="r-proof">
      <p>
        <Badge tone={bad ? "bad" : checked.included && checked.signed ? "ok" : "quiet"} icon={bad ? "alert" : "check"}>
          {bad ? "not valid" : checked.included && checked.signed ? "checked in this browser" : "not checked here"}
        </Badge>{" "}
        {checked.text}
      </p>
      <dl className="r-facts">
        <dt>Signed tree head</dt>
        <dd>
          {proof.checkpoint.size} entries, root <CopyText text={proof.checkpoint.root} />
        </dd>
        <dt>Key</dt>
        <dd>
          <CopyText text={proof.key} />
          <p className="quiet">Only this server vouches for it until you compare it with one that you keep.</p>
        </dd>
        <dt>Line</dt>
        <dd>
          <details>
            <summary>as it was written, {proof.hashes?.length ?? 0} hashes</summary>
            <pre className="r-raw">{inert(proof.entry).text}</pre>
          </details>
        </dd>
      </dl>
      <Button icon="download" onClick={() => save(proof)}>
        Save proof
      </Button>
    </div>
  );
}

function save(proof: Proof): void {
  const url = URL.createObjectURL(new Blob([JSON.stringify(proof, null, 2)], { type: "application/json" }));
  const a = document.createElement("a");
  a.href = url;
  a.download = `entry-${proof.seq}.proof`;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
