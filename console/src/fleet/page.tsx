import { Link, getRouteApi, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo, useRef, useState } from "react";
import type { FleetRow } from "../api/console";
import { useCan } from "../api/session";
import { useShortcuts } from "../app/shortcuts";
import { useFleet } from "../live";
import { Button, CopyText, Empty, Icon, IconButton, Loading, Page } from "../parts";
import { FilterBar } from "./bar";
import { type Act, acts } from "./bulk";
import { BulkDialog } from "./bulkdialog";
import "./fleet.css";
import { useHeldOrder } from "./hold";
import { SandboxList } from "./list";
import { type FleetSearch, filterFleet, fleetSearch, sortFleet } from "./search";

const route = getRouteApi("/");

/** The page with all sandboxes. */
export function FleetPage() {
  const search = route.useSearch();
  const navigate = useNavigate();
  const operator = useCan("operator");
  const { rows, ready } = useFleet();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [task, setTask] = useState<{ act: Act; rows: readonly FleetRow[] } | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const sorted = useMemo(() => sortFleet(filterFleet(rows, search), search.sort ?? "attention"), [rows, search]);
  const { rows: shown, touch } = useHeldOrder(sorted, search);
  const chosenRows = useMemo(() => rows.filter((row) => chosen.has(row.id)), [rows, chosen]);
  const table = search.view === "table";

  const change = useCallback(
    (part: Partial<Record<keyof FleetSearch, unknown>>) =>
      void navigate({ to: "/", search: (was) => fleetSearch({ ...was, ...part }), replace: true }),
    [navigate],
  );
  const choose = useCallback((id: string, on: boolean) => {
    setChosen((was) => {
      const next = new Set(was);
      if (on) next.add(id);
      else next.delete(id);
      return next;
    });
  }, []);
  const open = useCallback((row: FleetRow) => void navigate({ to: "/s/$id/$tab", params: { id: row.id, tab: "live" } }), [navigate]);
  const act = useCallback((name: Act, row: FleetRow) => setTask({ act: name, rows: [row] }), []);

  useShortcuts({
    "/": { label: "Filter the fleet", run: () => input.current?.focus() },
    j: { label: "Next sandbox", run: focusFirst },
    ArrowDown: { label: "", run: focusFirst },
    v: { label: "Grid or table", run: () => change({ view: table ? undefined : "table" }) },
    ...(operator ? { n: { label: "New sandbox", run: () => void navigate({ to: "/new" }) } } : {}),
  });

  const filtered = Object.keys(search).some((name) => name !== "sort" && name !== "view");
  return (
    <Page
      title="Fleet"
      actions={
        <>
          <span className="fleet-count quiet">{ready && countText(rows, shown)}</span>
          {/* A screen reader announces it only for a filter, because a fleet always changes. */}
          <span className="unseen" role="status">
            {ready && filtered && `${shown.length} found`}
          </span>
          <span className="fleet-views" role="group" aria-label="View">
            <IconButton icon="fleet" label="Grid" aria-pressed={!table} onClick={() => change({ view: undefined })} />
            <IconButton icon="table" label="Table" aria-pressed={table} onClick={() => change({ view: "table" })} />
          </span>
          {operator && (
            <Link to="/new" className="p-button p-button-primary">
              <Icon name="plus" />
              New sandbox
            </Link>
          )}
        </>
      }
    >
      {rows.length > 0 && <FilterBar rows={rows} search={search} onChange={change} input={input} onLeave={focusFirst} />}
      {operator && chosenRows.length > 0 && (
        <div className="fleet-picked" role="group" aria-label="Chosen sandboxes">
          <strong>{chosenRows.length} chosen</strong>
          {(["pause", "resume", "stop"] as const).map((name) => (
            <Button
              key={name}
              variant={name === "stop" ? "danger" : "plain"}
              disabled={!chosenRows.some(acts[name].isPossible)}
              onClick={() => setTask({ act: name, rows: chosenRows })}
            >
              {acts[name].label}
            </Button>
          ))}
          {chosenRows.length < shown.length && (
            <Button variant="quiet" onClick={() => setChosen(new Set(shown.map((row) => row.id)))}>
              Choose all {shown.length}
            </Button>
          )}
          <Button variant="quiet" onClick={() => setChosen(new Set())}>
            Clear
          </Button>
        </div>
      )}
      {!ready && <Loading what="Loading sandboxes" />}
      {ready && rows.length === 0 && <NoSandboxes operator={operator} />}
      {ready && rows.length > 0 && shown.length === 0 && (
        <Empty title="No sandbox matches the filter">
          {filtered && (
            <Link to="/" search={search.view ? { view: search.view } : {}}>
              Show all {rows.length}
            </Link>
          )}
        </Empty>
      )}
      {shown.length > 0 && (
        <div onPointerMove={touch} onPointerDown={touch} onKeyDown={touch} onFocus={touch}>
          <SandboxList rows={shown} chosen={chosen} table={table} operator={operator} onChoose={choose} onAct={act} onOpen={open} />
        </div>
      )}
      {task && (
        <BulkDialog
          {...task}
          onClose={(failed) => {
            setTask(null);
            if (failed) setChosen(new Set(failed));
          }}
        />
      )}
    </Page>
  );
}

function focusFirst() {
  document.querySelector<HTMLElement>(".fleet-sandbox[tabindex='0']")?.focus();
}

function countText(rows: readonly FleetRow[], shown: readonly FleetRow[]): string {
  const running = rows.reduce((n, row) => n + (row.state === "running" ? 1 : 0), 0);
  const of = shown.length === rows.length ? `${rows.length}` : `${shown.length} of ${rows.length}`;
  return `${of} ${rows.length === 1 ? "sandbox" : "sandboxes"}, ${running} running`;
}

function NoSandboxes({ operator }: { operator: boolean }) {
  return (
    <Empty title="No sandboxes yet">
      <p>Sandboxes of agents and people appear here at once, with their commands, resources and requests.</p>
      {operator && (
        <p>
          <Link to="/new">Create one here</Link>, or from a shell:
        </p>
      )}
      <CopyText text="crannog run -- python3 -c 'print(6*7)'" />
    </Empty>
  );
}
