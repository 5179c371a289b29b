import { useState } from "react";
import type { FleetRow } from "../api/console";
import { Badge, Button, Dialog, Inert, Time } from "../parts";
import { type Act, type Outcome, acts, forEach, perform } from "./bulk";
import { title } from "./search";

/** Asks for confirmation of an action on several sandboxes, performs it, and shows each result. */
export function BulkDialog({ act, rows, onClose }: { act: Act; rows: readonly FleetRow[]; onClose: (failed: string[] | null) => void }) {
  const { label, doing, done, isPossible } = acts[act];
  // The action applies to the sandboxes that were shown when it was requested.
  const [chosen] = useState(() => rows.filter(isPossible));
  const [excluded] = useState(() => rows.length - chosen.length);
  const [outcomes, setOutcomes] = useState<ReadonlyMap<string, Outcome>>(new Map());
  const [phase, setPhase] = useState<"ask" | "work" | "end">("ask");

  const all = [...outcomes.values()];
  const failed = chosen.filter((row) => outcomes.get(row.id)?.state === "failed");
  const run = async () => {
    setPhase("work");
    await forEach(
      chosen,
      (row) => perform(act, row),
      (row, outcome) => setOutcomes((was) => new Map(was).set(row.id, outcome)),
    );
    setPhase("end");
  };
  const close = () => {
    if (phase !== "work") onClose(phase === "end" ? failed.map((row) => row.id) : null);
  };

  const explanation =
    act === "stop"
      ? "Everything in them that is not in a snapshot or exported is lost. This cannot be undone."
      : act === "pause"
        ? "Their memory and files are saved, and their processes stop until they are resumed."
        : "Their processes continue where they were.";

  return (
    <Dialog
      title={phase === "ask" ? `${label} ${count(chosen.length)}?` : `${phase === "work" ? doing : label}: ${count(chosen.length)}`}
      open
      onOpenChange={close}
      footer={
        phase === "ask" ? (
          <>
            <Button onClick={close}>Cancel</Button>
            <Button variant={act === "stop" ? "danger" : "primary"} disabled={chosen.length === 0} onClick={() => void run()}>
              {label} {count(chosen.length)}
            </Button>
          </>
        ) : (
          <Button busy={phase === "work"} onClick={close}>
            {phase === "work" ? `${all.length} of ${chosen.length}` : "Close"}
          </Button>
        )
      }
    >
      {phase === "ask" && <p>{explanation}</p>}
      {excluded > 0 && phase === "ask" && <p className="quiet">{excluded} of the chosen sandboxes are not included, because their state does not allow it.</p>}
      {phase !== "ask" && (
        <p role="status">
          {all.length - failed.length} {done}
          {failed.length > 0 && `, ${failed.length} failed`}
          {phase === "work" && "…"}
        </p>
      )}
      <ul className="fleet-bulk" aria-label="Sandboxes">
        {(phase === "end" && failed.length > 0 ? [...failed, ...chosen.filter((row) => !failed.includes(row))] : chosen).map((row) => (
          <li key={row.id}>
            <Inert text={title(row)} />
            <Result outcome={outcomes.get(row.id)} done={done} row={row} />
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

function count(n: number): string {
  return n === 1 ? "1 sandbox" : `${n} sandboxes`;
}

function Result({ outcome, done, row }: { outcome: Outcome | undefined; done: string; row: FleetRow }) {
  if (!outcome)
    return (
      <span className="quiet">
        {row.state}, <Time at={row.created_at} relative />
      </span>
    );
  if (outcome.state === "failed")
    return (
      <Badge tone="bad" icon="close">
        <Inert text={outcome.problem.text} />
      </Badge>
    );
  return (
    <Badge tone="ok" icon="check">
      {done}
    </Badge>
  );
}
