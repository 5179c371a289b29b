import { useState } from "react";
import { Button, Field, Inert, Problem, Select, Verdict } from "../parts";
import { asURL, methods } from "./lint";
import { explain, type Explained } from "./read";

export interface Subject {
  label: string;
  of: () => { document: string } | { sandbox: string };
}

/** Asks the server how a policy decides about a request. The request itself is not sent. */
export function Explain({ subjects }: { subjects: readonly Subject[] }) {
  const [method, setMethod] = useState("GET");
  const [typed, setTyped] = useState("");
  const [wrong, setWrong] = useState("");
  const [which, setWhich] = useState(0);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [result, setResult] = useState<{ of: string; request: string; explained: Explained } | null>(null);
  const subject = subjects[which] ?? subjects[0];

  const ask = async () => {
    const url = method === "CONNECT" ? { url: typed.trim() } : asURL(typed);
    if ("wrong" in url) {
      setWrong(url.wrong);
      return;
    }
    if (!subject) return;
    setWrong("");
    setError(undefined);
    setBusy(true);
    try {
      setResult({ of: subject.label, request: `${method} ${url.url}`, explained: await explain(subject.of(), method, url.url) });
    } catch (e) {
      setResult(null);
      setError(e);
    } finally {
      setBusy(false);
    }
  };

  return (
    <section className="y-panel" aria-labelledby="y-explain">
      <h2 id="y-explain">Explain a request</h2>
      <form
        className="y-form"
        onSubmit={(e) => {
          e.preventDefault();
          void ask();
        }}
      >
        <div className="y-request">
          <Select label="Method" value={method} onChange={setMethod} options={[...methods, { value: "CONNECT", label: "connection" }]} />
          <input type="text" aria-label="URL" aria-invalid={wrong !== "" || undefined} autoComplete="off" spellCheck={false} placeholder={method === "CONNECT" ? "example.com:443" : "https://api.github.com/repos"} value={typed} onChange={(e) => setTyped(e.target.value)} />
        </div>
        {wrong && (
          <p className="p-field-error" role="alert">
            {wrong}
          </p>
        )}
        {subjects.length > 1 && (
          <Field label="By">
            <Select label="By" value={String(which)} onChange={(v) => setWhich(Number(v))} options={subjects.map((s, i) => ({ value: String(i), label: s.label }))} />
          </Field>
        )}
        <Button busy={busy} onClick={() => void ask()}>
          Explain
        </Button>
      </form>
      {error !== undefined && <Problem error={error} />}
      <div role="status">{result && <Answer {...result} />}</div>
    </section>
  );
}

function Answer({ of, request, explained }: { of: string; request: string; explained: Explained }) {
  return (
    <div className="y-answer">
      <p>
        <Verdict effect={explained.effect} />{" "}
        <code>
          <Inert text={request} />
        </code>{" "}
        <span className="quiet">by {of}</span>
      </p>
      <dl className="y-facts">
        <dt>Rule</dt>
        <dd>
          <code>
            <Inert text={explained.rule} />
          </code>
        </dd>
        {explained.layer && (
          <>
            <dt>Layer</dt>
            <dd>{explained.layer}</dd>
          </>
        )}
        {explained.reason && (
          <>
            <dt>Reason</dt>
            <dd>
              <Inert text={explained.reason} />
            </dd>
          </>
        )}
        {explained.fix && (
          <>
            <dt>What would allow it</dt>
            <dd>
              <Inert text={explained.fix} />
            </dd>
          </>
        )}
      </dl>
      {explained.steps && explained.steps.length > 0 && (
        <details>
          <summary>How it was decided</summary>
          <ol className="y-steps">
            {explained.steps.map((s, i) => (
              <li key={i}>
                <span className="quiet">{s.layer}</span>{" "}
                {s.rule && (
                  <code>
                    <Inert text={s.rule} />
                  </code>
                )}{" "}
                <Inert text={s.text} />
                {s.effect && ` (${s.effect})`}
              </li>
            ))}
          </ol>
        </details>
      )}
    </div>
  );
}
