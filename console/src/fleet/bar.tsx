import type { Ref } from "react";
import type { FleetRow } from "../api/console";
import { Select, Toggle } from "../parts";
import { inertLine } from "../parts/inert";
import { useTyped } from "../parts/typed";
import { type FleetSearch, type Sort, choices, sorts } from "./search";

const sortLabels: Record<Sort, string> = {
  attention: "By attention",
  name: "By name",
  newest: "Newest first",
  ends: "Ends soonest",
  state: "By state",
};

export interface FilterBarProps {
  rows: readonly FleetRow[];
  search: FleetSearch;
  onChange: (change: { [K in keyof FleetSearch]?: FleetSearch[K] | undefined }) => void;
  input: Ref<HTMLInputElement>;
  /** Moves the focus to the results. */
  onLeave: () => void;
}

/** The filter and the sorting of the fleet. Both are in the address. */
export function FilterBar({ rows, search, onChange, input, onLeave }: FilterBarProps) {
  const [typed, type] = useTyped(search.q ?? "", (q) => onChange({ q }));
  const needs = rows.reduce((n, row) => n + (row.attention > 0 ? 1 : 0), 0);
  return (
    <search className="fleet-bar" aria-label="Filter of the fleet">
      <input
        ref={input}
        type="search"
        aria-label="Filter"
        placeholder="Filter by name, ID, template, label, command"
        value={typed}
        onChange={(event) => type(event.currentTarget.value)}
        onKeyDown={(event) => {
          // Escape clears it, as in any search field.
          if (event.key === "Escape") event.currentTarget.blur();
          else if (event.key === "Enter" || event.key === "ArrowDown") onLeave();
        }}
      />
      <Filter name="state" label="State" of={(row) => [row.state]} {...{ rows, search, onChange }} />
      <Filter name="level" label="Level" of={(row) => [row.level]} {...{ rows, search, onChange }} />
      <Filter name="owner" label="Owner" of={(row) => [row.owner]} {...{ rows, search, onChange }} />
      <Filter
        name="label"
        label="Label"
        of={(row) => Object.entries(row.labels ?? {}).map(([key, value]) => `${key}=${value}`)}
        {...{ rows, search, onChange }}
      />
      <Toggle
        label={`Needs attention (${needs})`}
        on={search.attention === true}
        onChange={(on) => onChange({ attention: on ? true : undefined })}
      />
      <span className="fleet-bar-sort">
        <Select
          label="Sort by"
          value={search.sort ?? "attention"}
          options={sorts.map((value) => ({ value, label: sortLabels[value] }))}
          onChange={(value) => onChange({ sort: value as Sort })}
        />
      </span>
    </search>
  );
}

interface FilterProps extends Omit<FilterBarProps, "input" | "onLeave"> {
  name: "state" | "level" | "owner" | "label";
  label: string;
  of: (row: FleetRow) => readonly string[];
}

function Filter({ name, label, of, rows, search, onChange }: FilterProps) {
  const value = search[name] ?? "";
  const found = choices(rows, of).slice(0, 100);
  // The value in the address is offered too, even if no sandbox has it now.
  if (value && !found.some((choice) => choice.value === value)) found.unshift({ value, count: 0 });
  if (found.length < 2 && !value) return null;
  return (
    <Select
      label={label}
      value={value}
      options={[
        { value: "", label: `${label}: all` },
        ...found.map((choice) => ({ value: choice.value, label: `${inertLine(choice.value).text} (${choice.count})` })),
      ]}
      onChange={(next) => onChange({ [name]: next })}
    />
  );
}
