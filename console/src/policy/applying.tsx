import { useState } from "react";
import type { Schemas } from "../api/client";
import { Confirm, Field, Inert, Select } from "../parts";
import { apply, type Level, type Net } from "./read";

export interface ApplyProps {
  sandbox: Schemas["Sandbox"];
  document: string;
  warnings: number;
  onClose: () => void;
  onApplied: () => void;
}

const levels: Level[] = ["strict", "standard", "light", "minimal"];
const nets: { value: Net; label: string }[] = [
  { value: "policy", label: "policy: what level and document say" },
  { value: "dev", label: "dev: registries, forges and models too" },
  { value: "open", label: "open: every public host too" },
];

/** Asks once more before a running sandbox gets another policy. */
export function ApplyDialog({ sandbox, document, warnings, onClose, onApplied }: ApplyProps) {
  const now = sandbox.network;
  const [level, setLevel] = useState<Level>(levels.find((l) => l === now.level) ?? "standard");
  const [net, setNet] = useState<Net>("policy");
  const what = (
    <div className="y-form">
      <p>
        The sandbox <strong>{sandbox.name ? <Inert text={sandbox.name} /> : sandbox.id}</strong> gets the draft instead of everything that it was given: its own document, its network ({now.net}), and every host that was allowed by hand or by an approval. Pending requests, and grants that were not used, are void.
      </p>
      <Field label="Level" hint={`Now ${now.level}. If the draft names a level too, the stricter one counts.`}>
        <Select label="Level" value={level} options={levels} onChange={(v) => setLevel(v as Level)} />
      </Field>
      <Field label="Network">
        <Select label="Network" value={net} options={nets} onChange={(v) => setNet(v as Net)} />
      </Field>
      {warnings > 0 && <p>The draft has {warnings === 1 ? "a warning" : `${warnings} warnings`}.</p>}
    </div>
  );
  return (
    <Confirm
      title="Apply this policy?"
      what={what}
      action="Apply policy"
      open
      onOpenChange={onClose}
      onConfirm={async () => {
        await apply(sandbox.id, { level, net, policy: document });
        onApplied();
      }}
    />
  );
}
