import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { useShortcuts } from "../app/shortcuts";
import { Button, Menu } from "../parts";
import { kindGroups } from "./entry";
import { hasKind, isFiltered, toggled, withChange, type RecordSearch } from "./filter";

type TextKey = "sandbox" | "actor" | "since" | "until" | "text";

/** The filter. All of it is in the URL. */
export function Filters({ search, wrong }: { search: RecordSearch; wrong: readonly string[] }) {
  const navigate = useNavigate();
  const change = (to: Parameters<typeof withChange>[1]) =>
    void navigate({ to: ".", search: withChange(search, to), replace: true });
  const text = useRef<HTMLInputElement>(null);
  useShortcuts({ "/": { label: "Filter the audit log", run: () => text.current?.focus() } });
  return (
    <form className="r-filters" role="search" aria-label="Filter the audit log" onSubmit={(e) => e.preventDefault()}>
      <Typed name="text" label="Text" placeholder="Any text" wide search={search} change={change} input={text} />
      <Typed name="sandbox" label="Sandbox" placeholder="ID or name" search={search} change={change} />
      <Typed name="actor" label="Actor" placeholder="key:, local:, box" search={search} change={change} />
      <Typed name="since" label="From" placeholder="2h, 3d or a date" search={search} change={change} />
      <Typed name="until" label="Until" placeholder="now" search={search} change={change} />
      <Kinds kind={search.kind} onChange={(kind) => change({ kind: kind === "" ? undefined : kind })} />
      {isFiltered(search) && (
        <Button variant="quiet" icon="close" onClick={() => void navigate({ to: ".", search: {} })}>
          Clear
        </Button>
      )}
      {wrong.map((w) => (
        <p key={w} className="r-wrong" role="alert">
          {w}
        </p>
      ))}
    </form>
  );
}

interface TypedProps {
  name: TextKey;
  label: string;
  placeholder: string;
  wide?: boolean;
  search: RecordSearch;
  change: (to: Parameters<typeof withChange>[1]) => void;
  input?: React.RefObject<HTMLInputElement | null>;
}

const addressDelay = 350;

function Typed({ name, label, placeholder, wide, search, change, input }: TypedProps) {
  const said = search[name] ?? "";
  const [typed, setTyped] = useState(said);
  const latest = useRef(change);
  latest.current = change;
  const sent = useRef(said);
  useEffect(() => {
    // A value from the address must not replace what was typed since.
    if (said !== sent.current) setTyped(said);
    sent.current = said;
  }, [said]);
  useEffect(() => {
    if (typed === said) return;
    const timer = setTimeout(() => {
      sent.current = typed;
      latest.current({ [name]: typed === "" ? undefined : typed });
    }, addressDelay);
    return () => clearTimeout(timer);
  }, [typed, said, name]);
  return (
    <label className={wide ? "r-field r-field-wide" : "r-field"}>
      <span>{label}</span>
      <input ref={input} type="search" autoComplete="off" spellCheck={false} placeholder={placeholder} value={typed} onChange={(e) => setTyped(e.target.value)} />
    </label>
  );
}

function Kinds({ kind, onChange }: { kind: string | undefined; onChange: (kind: string) => void }) {
  const items = kindGroups.map((g) => {
    const on = kind !== undefined && g.kinds.every((k) => hasKind(kind, k));
    return { label: `${on ? "✓ " : ""}${g.name}`, onSelect: () => onChange(toggled(kind, g.kinds)) };
  });
  const chosen = kindGroups.filter((g) => kind !== undefined && g.kinds.some((k) => hasKind(kind, k))).map((g) => g.name);
  return (
    <Menu
      label="Kinds"
      items={items}
      trigger={
        <Button icon="filter" className="r-kinds">
          {chosen.length === 0 ? "All kinds" : chosen.length <= 2 ? chosen.join(", ") : `${chosen.length} kinds`}
        </Button>
      }
    />
  );
}
