import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { useShortcuts } from "../app/shortcuts";
import { Button, Menu } from "../parts";
import { kindGroups } from "./entry";
import { hasKind, isFiltered, toggleKinds, withChange, type RecordSearch } from "./filter";

type TextKey = "sandbox" | "actor" | "since" | "until" | "text";

/** The filter. All of it is in the URL. */
export function Filters({ search, errors }: { search: RecordSearch; errors: readonly string[] }) {
  const navigate = useNavigate();
  const change = (to: Parameters<typeof withChange>[1]) =>
    void navigate({ to: ".", search: withChange(search, to), replace: true });
  const text = useRef<HTMLInputElement>(null);
  useShortcuts({ "/": { label: "Filter the audit log", run: () => text.current?.focus() } });
  return (
    <form className="r-filters" role="search" aria-label="Filter the audit log" onSubmit={(e) => e.preventDefault()}>
      <FilterField name="text" label="Text" placeholder="Any text" wide search={search} change={change} input={text} />
      <FilterField name="sandbox" label="Sandbox" placeholder="ID or name" search={search} change={change} />
      <FilterField name="actor" label="Actor" placeholder="key:, local:, box" search={search} change={change} />
      <FilterField name="since" label="From" placeholder="2h, 3d or a date" search={search} change={change} />
      <FilterField name="until" label="Until" placeholder="now" search={search} change={change} />
      <Kinds kind={search.kind} onChange={(kind) => change({ kind: kind === "" ? undefined : kind })} />
      {isFiltered(search) && (
        <Button variant="quiet" icon="close" onClick={() => void navigate({ to: ".", search: {} })}>
          Clear
        </Button>
      )}
      {errors.map((error) => (
        <p key={error} className="r-wrong" role="alert">
          {error}
        </p>
      ))}
    </form>
  );
}

interface FilterFieldProps {
  name: TextKey;
  label: string;
  placeholder: string;
  wide?: boolean;
  search: RecordSearch;
  change: (to: Parameters<typeof withChange>[1]) => void;
  input?: React.RefObject<HTMLInputElement | null>;
}

const urlDelay = 350;

function FilterField({ name, label, placeholder, wide, search, change, input }: FilterFieldProps) {
  const urlValue = search[name] ?? "";
  const [typed, setTyped] = useState(urlValue);
  const latest = useRef(change);
  latest.current = change;
  const lastSent = useRef(urlValue);
  useEffect(() => {
    // A new value from the URL must not replace text that was typed in the meantime.
    if (urlValue !== lastSent.current) setTyped(urlValue);
    lastSent.current = urlValue;
  }, [urlValue]);
  useEffect(() => {
    if (typed === urlValue) return;
    const timer = setTimeout(() => {
      lastSent.current = typed;
      latest.current({ [name]: typed === "" ? undefined : typed });
    }, urlDelay);
    return () => clearTimeout(timer);
  }, [typed, urlValue, name]);
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
    return { label: `${on ? "✓ " : ""}${g.name}`, onSelect: () => onChange(toggleKinds(kind, g.kinds)) };
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
