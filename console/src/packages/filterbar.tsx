import type { ReactNode, RefObject } from "react";
import { inertLine, Select } from "../parts";
import { useTyped } from "../parts/typed";
import type { Change } from "./page";
import type { PackageSearch } from "./search";

export interface FilterProps {
  search: PackageSearch;
  change: (to: Change) => void;
  input: RefObject<HTMLInputElement | null>;
}

/** The text and the ecosystem, and further controls of a view. All of it is in the URL. */
export function FilterBar({ search, change, input, ecosystems, placeholder, children }: FilterProps & { ecosystems: readonly string[]; placeholder: string; children: ReactNode }) {
  const [typed, type] = useTyped(search.q ?? "", (q) => change({ q: q || undefined }));
  const chosen = search.ecosystem ?? "";
  // The one in the URL is offered too, even if nothing has it now.
  const offered = [...new Set(chosen ? [chosen, ...ecosystems] : ecosystems)].sort();
  return (
    <search className="pk-bar" aria-label="Filter of packages">
      <input ref={input} type="search" aria-label="Filter" autoComplete="off" spellCheck={false} placeholder={placeholder} value={typed} onChange={(e) => type(e.currentTarget.value)} />
      <Select
        label="Ecosystem"
        value={chosen}
        options={[{ value: "", label: "All ecosystems" }, ...offered.map((value) => ({ value, label: inertLine(value).text }))]}
        onChange={(value) => change({ ecosystem: value || undefined })}
      />
      {children}
    </search>
  );
}
