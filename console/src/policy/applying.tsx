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
  { value: "policy", label: "policy: as level and document determine" },
  { value: "dev", label: "dev: registries, forges and models too" },
  { value: "open", label: "open: every public host too" },
];

/** Asks for confirmation before a running sandbox gets another policy. */
export function ApplyDialog({ sandbox, document, warnings, onClose, onApplied }: ApplyProps) {
  const current = sandbox.network;
  const [level, setLevel] = useState<Level>(levels.find((l) => l === current.level) ?? "standard");
  const [net, setNet] = useState<Net>("policy");
  const what = (
    <div className="y-form">
      <p>
        The sandbox <strong>{sandbox.name ? <Inert text={sandbox.name} /> : sandbox.id}</strong> gets the draft. It replaces the sandbox's own document, its network ({current.net}), and every host that was allowed by a person or an approval. Pending requests and unused grants become void.
      </p>
      <Field label="Level" hint={`Now ${current.level}. If the draft names a level too, the stricter one counts.`}>
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
