import { useState } from "react";
import { Badge, Code, Duration, Inert, inert, Problem, Select } from "../parts";
import { viewsOf, type Output, type View } from "./cells";
import type { Cell } from "./running";

const words = { running: "running", done: "done", failed: "failed", interrupted: "interrupted", lost: "connection lost" } as const;
const tones = { running: "info", done: "ok", failed: "bad", interrupted: "warn", lost: "bad" } as const;
const icons = { running: "clock", done: "check", failed: "alert", interrupted: "stop", lost: "alert" } as const;

/** A cell that was run, with its code and all of its output. */
export function CellView({ cell, n }: { cell: Cell; n: number }) {
  const { run } = cell;
  return (
    <article className="c-cell" aria-label={`Cell ${n}`}>
      <header className="c-cell-head">
        <span className="quiet">
          {n} · {cell.language}
        </span>
        <Badge tone={tones[run.state]} icon={icons[run.state]}>
          {words[run.state]}
        </Badge>
        {run.durationMS !== undefined && (
          <span className="quiet">
            <Duration ms={run.durationMS} />
          </span>
        )}
      </header>
      <Code text={cell.code} language={cell.language} />
      <div className="c-output" aria-live="polite">
        {run.dropped > 0 && <p className="quiet">The first {run.dropped} characters of the output are not shown.</p>}
        {run.outputs.map((o, i) => (
          <OutputView key={i} output={o} />
        ))}
      </div>
      {cell.error !== undefined && <Problem error={cell.error} />}
    </article>
  );
}

function OutputView({ output: o }: { output: Output }) {
  if (o.kind === "result") return <Result data={o.data} />;
  if (o.kind === "error") {
    return (
      <div className="c-error" role="group" aria-label="Error">
        <p>
          <strong>
            <Inert text={o.name} />
          </strong>
          : <Inert text={o.value} />
        </p>
        {o.traceback && <Inert text={o.traceback} block />}
      </div>
    );
  }
  // Terminal colours cannot deceive here, so they are removed without a mark.
  return <pre className={o.kind === "stderr" ? "c-text c-stderr" : "c-text"}>{inert(o.text).text}</pre>;
}

const names = { image: "Picture", frame: "HTML", table: "Table", text: "Text" } as const;

function Result({ data }: { data: Record<string, unknown> }) {
  const [views] = useState(() => viewsOf(data));
  const [which, setWhich] = useState(0);
  const view = views[which];
  if (!view) return null;
  return (
    <div className="c-result">
      {views.length > 1 && <Select label="Shown as" value={String(which)} onChange={(v) => setWhich(Number(v))} options={views.map((v, i) => ({ value: String(i), label: names[v.as] }))} />}
      <ViewContent view={view} />
    </div>
  );
}

function ViewContent({ view }: { view: View }) {
  if (view.as === "image") return <img className="c-image" src={view.src} alt={view.alt} />;
  if (view.as === "text") return <pre className="c-text">{inert(view.text).text}</pre>;
  // The attribute sandbox is empty: no script, no origin, no forms, no navigation of the page.
  if (view.as === "frame") return <iframe className="c-frame" title="HTML result" sandbox="" referrerPolicy="no-referrer" srcDoc={view.html} />;
  return (
    <div className="c-table" tabIndex={0} role="region" aria-label="Table">
      <table className="p-table">
        <thead>
          <tr>
            {view.columns.map((c, i) => (
              <th key={i} scope="col">
                <Inert text={c} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {view.rows.map((r, i) => (
            <tr key={i}>
              {r.map((v, j) => (
                <td key={j}>
                  <Inert text={v} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
