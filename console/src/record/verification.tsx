import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Badge, Button, CopyText, Field, Icon, Inert, Problem, Time } from "../parts";
import { notesOf, useTreeHead, verify } from "./read";
import { verdictOf, type Verdict } from "./verdict";

interface Result {
  verdict: Verdict;
  at: string;
  against: number;
}

/** The state of one verification at a time. */
export function useVerification() {
  const [result, setResult] = useState<Result | null>(null);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const run = async (against: string[] = []) => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    setResult(null);
    try {
      const verdict = verdictOf(await verify(against));
      setResult({ verdict, at: new Date().toISOString(), against: against.length });
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return { result, error, busy, run };
}

/** The result of a verification, and the signed tree head that covers the log. */
export function VerificationPanel({ v }: { v: ReturnType<typeof useVerification> }) {
  return (
    <section className="r-verify" aria-label="Verification">
      <div role="status">
        {v.busy && (
          <p className="quiet">
            <span className="p-spinner" aria-hidden="true" /> Reading every entry…
          </p>
        )}
        {v.result && <Outcome result={v.result} />}
      </div>
      {v.error !== undefined && <Problem error={v.error} retry={() => void v.run()} />}
      <NewestTreeHead />
      <CompareForm run={v.run} busy={v.busy} />
    </section>
  );
}

function Outcome({ result: { verdict, at, against } }: { result: Result }) {
  return (
    <div className="r-outcome" data-ok={verdict.ok}>
      <Icon name={verdict.ok ? "check" : "alert"} size={20} />
      <div>
        <p>
          <Badge tone={verdict.ok ? "ok" : "bad"}>{verdict.ok ? "verified" : "not verified"}</Badge> <strong>{verdict.title}</strong>
        </p>
        {verdict.detail && (
          <p>
            <Inert text={verdict.detail} />
          </p>
        )}
        {verdict.seq !== undefined && (
          <p>
            <Link to="/record/$seq" params={{ seq: String(verdict.seq) }}>
              Show entry {verdict.seq}
            </Link>
          </p>
        )}
        <p className="quiet">
          <Time at={at} />
          {against > 0 && `, compared with ${against} ${against === 1 ? "signed tree head" : "signed tree heads"} of yours`}
        </p>
      </div>
    </div>
  );
}

function NewestTreeHead() {
  const c = useTreeHead();
  if (c.error) return <Problem error={c.error} />;
  if (!c.data) return null;
  return (
    <dl className="r-facts r-statement">
      <dt>Newest signed tree head</dt>
      <dd>{c.data.size} entries</dd>
      <dt>Head hash</dt>
      <dd>
        <CopyText text={c.data.root} />
      </dd>
      <dt>Signed note</dt>
      <dd>
        <CopyText text={c.data.note} label="copy it, and keep it elsewhere" />
      </dd>
    </dl>
  );
}

function CompareForm({ run, busy }: { run: (against: string[]) => Promise<void>; busy: boolean }) {
  const [pasted, setPasted] = useState("");
  const [error, setError] = useState("");
  const compare = () => {
    let notes: string[] = [];
    try {
      notes = notesOf(pasted);
    } catch {
      setError("This text contains no signed notes, also not in lines of JSON.");
      return;
    }
    setError("");
    if (notes.length > 0) void run(notes);
  };
  return (
    <details>
      <summary>Compare with signed tree heads that you kept elsewhere</summary>
      <div className="r-against">
        <Field label="Signed notes" error={error || undefined} hint="Only copies outside this server reveal that a person with its key rewrote the history.">
          <textarea rows={6} spellCheck={false} className="mono" value={pasted} onChange={(e) => setPasted(e.target.value)} />
        </Field>
        <Button busy={busy} disabled={pasted.trim() === ""} onClick={compare}>
          Compare
        </Button>
      </div>
    </details>
  );
}
