import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, unwrap } from "../../api/client";
import type { Entry } from "../../api/console";
import { useSession } from "../../api/session";
import { Badge, Button, Code, Dialog, Empty, Icon, Inert, inertLine, Loading, Problem, Select } from "../../parts";
import { summaryOf } from "../../record/entry";
import { useSubmit } from "../actions";
import { useEntryLog } from "../live/history";
import { Clock } from "../live/tab";
import { Lines } from "../lines";
import { useSandbox } from "../queries";
import { useFilters } from "../search";

/** The audit entries of this sandbox, and their verification. */
export function RecordTab() {
  const sandbox = useSandbox();
  const log = useEntryLog(sandbox.id);
  const [filters, set] = useFilters();
  const [proof, prove] = useState<number>();
  const groups = [...new Set(log.entries.map((one) => one.kind.split(".")[0] ?? ""))].sort();
  const entries = filters.kind ? log.entries.filter((one) => one.kind === filters.kind || one.kind.startsWith(`${filters.kind}.`)) : log.entries;
  return (
    <section className="sb-column" aria-label="Audit log">
      <div className="sb-bar">
        <Select label="Kind" value={filters.kind ?? ""} options={[{ value: "", label: "all kinds" }, ...groups.map((one) => ({ value: one, label: one }))]} onChange={(value) => set({ kind: value || undefined })} />
        <Link to="/record" search={{ sandbox: sandbox.id }}>
          The whole audit log, with filters
        </Link>
        <span className="sb-fill" />
        <Verify />
      </div>
      {log.error ? (
        <Problem error={log.error} retry={log.retry} />
      ) : log.loading ? (
        <Loading what="Reading the audit log" />
      ) : (
        <Lines
          as="table" label="Entries" items={entries} keyOf={(one) => String(one.seq)} height={31} follow nameOf={(one) => `${one.seq} ${one.kind}`} head={<Head />}
          empty={<Empty title="No entry">The audit log has no entry of this kind.</Empty>}
        >
          {(one) => <Row entry={one} prove={() => prove(one.seq)} />}
        </Lines>
      )}
      {proof !== undefined && <ProofDialog seq={proof} close={() => prove(undefined)} />}
    </section>
  );
}

function Head() {
  return (
    <div className="sb-head sb-entry" role="row">
      {["Entry", "Time", "Kind", "Actor", "What", ""].map((name) => (
        <span key={name} role="columnheader">
          {name || <span className="sb-hidden">Actions</span>}
        </span>
      ))}
    </div>
  );
}

function Row({ entry, prove }: { entry: Entry; prove: () => void }) {
  return (
    <div className="sb-entry">
      <span role="cell">
        <Link to="/record/$seq" params={{ seq: String(entry.seq) }}>
          #{entry.seq}
        </Link>
      </span>
      <span role="cell">
        <Clock time={entry.time} />
      </span>
      <span role="cell">{entry.kind}</span>
      <span role="cell" className="quiet">
        <Inert text={entry.actor ?? ""} />
      </span>
      <span role="cell" className="mono sb-data" title={inertLine(JSON.stringify(entry.data ?? {})).text.slice(0, 4000)}>
        <Inert text={(summaryOf(entry) || JSON.stringify(entry.data ?? {})).slice(0, 400)} />
      </span>
      <span role="cell">
        <Button variant="quiet" onClick={prove}>
          Proof
        </Button>
      </span>
    </div>
  );
}

/** Verifies the whole audit log. */
function Verify() {
  const session = useSession();
  const [result, setResult] = useState<Schemas["Verification"]>();
  const verify = useSubmit(async () => {
    setResult(undefined);
    setResult(await unwrap(api.POST("/v1/record/verify", { body: {} })));
  });
  return (
    <div className="sb-verify">
      <span role="status">
        {verify.busy && <span className="quiet">Reading every entry…</span>}
        {result &&
          (result.ok ? (
            <Badge tone="ok" icon="check">
              {result.entries} entries are unchanged, {result.checkpoints} signed tree heads agree
            </Badge>
          ) : (
            <Badge tone="bad" icon="alert">
              {result.fault} at entry {result.seq ?? 0}
            </Badge>
          ))}
      </span>
      <Button icon="policy" busy={verify.busy} disabled={!session} onClick={verify.run}>
        Verify
      </Button>
      {result && !result.ok && (
        <p role="alert">
          <Inert text={result.text ?? ""} /> <Link to="/record/$seq" params={{ seq: String(result.seq ?? 0) }}>Entry {result.seq ?? 0}</Link>
        </p>
      )}
      {verify.error !== undefined && <Problem error={verify.error} />}
    </div>
  );
}

function ProofDialog({ seq, close }: { seq: number; close: () => void }) {
  const [proof, setProof] = useState<Schemas["Proof"]>();
  const fetch = useSubmit(async () => setProof(await unwrap(api.GET("/v1/record/{seq}/proof", { params: { path: { seq } } }))));
  return (
    <Dialog
      open wide onOpenChange={close} title={`Proof of entry ${seq}`}
      description="It proves, without trust in this server, that the entry is in the audit log of the signed tree head. Check it with: crannog audit prove --check FILE --key KEY, with the key from the operator of the server."
    >
      {!proof && fetch.error === undefined && (
        <Button variant="primary" busy={fetch.busy} onClick={fetch.run}>
          Create the proof
        </Button>
      )}
      {fetch.error !== undefined && <Problem error={fetch.error} retry={fetch.run} />}
      {proof && (
        <div className="sb-form">
          <p>
            <Icon name="lock" /> {(proof.hashes ?? []).length} hashes, under the signed tree head of {proof.checkpoint.size} entries.
          </p>
          <h3>Entry</h3>
          <Code text={proof.entry} />
          <h3>Signed tree head</h3>
          <Code text={proof.checkpoint.note} />
          <a className="p-button p-button-plain" download={`entry-${seq}.proof`} href={`data:application/octet-stream;charset=utf-8,${encodeURIComponent(JSON.stringify(proof))}`}>
            Download
          </a>
        </div>
      )}
    </Dialog>
  );
}
