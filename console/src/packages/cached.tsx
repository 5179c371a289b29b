import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api, unwrap } from "../api/client";
import { Button, Bytes, Code, CopyText, Empty, format, Inert, inertLine, Loading, Problem, Select, Table, Time, type Column } from "../parts";
import { Actions } from "./actions";
import { cacheKey, filterCached, nameOf, share, sortCached, totalsOf, usedBytes, type Cached, type Totals } from "./cache";
import { FilterBar, type FilterProps } from "./filterbar";
import { sorts, type Sort } from "./search";

/** The content of the cache, with its actions. */
export function Cache(props: FilterProps) {
  const cache = useQuery({ queryKey: cacheKey, queryFn: () => unwrap(api.GET("/v1/package-cache")) });
  const all = useMemo(() => cache.data?.packages ?? [], [cache.data]);
  const totals = useMemo(() => totalsOf(all), [all]);
  const used = useMemo(() => usedBytes(all), [all]);
  if (cache.error) return <Problem error={cache.error} retry={() => void cache.refetch()} />;
  if (cache.isPending) return <Loading />;
  return (
    <>
      <Budget used={used} budget={cache.data.budget_bytes} />
      <Actions used={used} empty={all.length === 0} />
      {all.length === 0 ? (
        <TurnOn />
      ) : (
        <>
          <section className="p-stack" aria-label="Totals">
            <Table label="Totals by ecosystem" columns={totalColumns} rows={totals} rowKey={(t) => t.ecosystem} rowLabel={(t) => t.ecosystem} />
          </section>
          <List all={all} ecosystems={totals.map((t) => t.ecosystem)} {...props} />
        </>
      )}
    </>
  );
}

function Budget({ used, budget }: { used: number; budget: number }) {
  const percent = Math.round(share(used, budget) * 100);
  return (
    <div className="pk-budget">
      <p>
        <strong>{format.bytes(used)}</strong> of {format.bytes(budget)} used <span className="quiet">(setting package_budget)</span>
      </p>
      <div role="meter" className="pk-meter" aria-label="Used budget" aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent} aria-valuetext={`${percent} %`} data-full={percent >= 90 || undefined}>
        <span style={{ width: `${percent}%` }} />
      </div>
    </div>
  );
}

const totalColumns: Column<Totals>[] = [
  { id: "ecosystem", header: "Ecosystem", cell: (t) => <Inert text={t.ecosystem} /> },
  { id: "packages", header: "Packages", align: "end", cell: (t) => t.packages },
  { id: "files", header: "Files", align: "end", cell: (t) => t.files },
  { id: "documents", header: "Documents", align: "end", cell: (t) => t.documents },
  { id: "size", header: "Size", align: "end", cell: (t) => <Bytes n={t.bytes} /> },
];

const columns: Column<Cached>[] = [
  {
    id: "name",
    header: "Name",
    cell: (p) => (
      <span title={inertLine(p.url).text}>
        <span className="quiet">{p.ecosystem}:</span>
        <Inert text={p.name} />
      </span>
    ),
  },
  { id: "version", header: "Version", cell: (p) => (p.version ? <Inert text={p.version} /> : <span className="quiet">document</span>) },
  { id: "size", header: "Size", align: "end", cell: (p) => <Bytes n={p.size_bytes} /> },
  { id: "fetched", header: "Fetched", align: "end", cell: (p) => <Time at={p.fetched_at} relative /> },
  { id: "used", header: "Used", align: "end", cell: (p) => <Time at={p.used_at} relative /> },
  { id: "sha", header: "SHA-256", cell: (p) => <CopyText text={p.sha256} label={`${p.sha256.slice(0, 12)}…`} /> },
];

const sortLabels: Record<Sort, string> = { name: "By name", largest: "Largest first", fetched: "Last fetched", used: "Last used" };

const pageSize = 100;

function List({ all, ecosystems, search, change, input }: FilterProps & { all: readonly Cached[]; ecosystems: readonly string[] }) {
  const { q, ecosystem, sort = "name" } = search;
  const found = useMemo(() => sortCached(filterCached(all, { ...(q ? { q } : {}), ...(ecosystem ? { ecosystem } : {}) }), sort), [all, q, ecosystem, sort]);
  const [pages, setPages] = useState(1);
  useEffect(() => setPages(1), [q, ecosystem, sort]);
  const shown = found.slice(0, pages * pageSize);
  return (
    <section className="p-stack pk-list" aria-label="Content">
      <FilterBar {...{ search, change, input, ecosystems }} placeholder="Filter by name, version, URL or SHA-256">
        <Select label="Sort by" value={sort} options={sorts.map((value) => ({ value, label: sortLabels[value] }))} onChange={(value) => change({ sort: value as Sort })} />
      </FilterBar>
      <p className="quiet" role="status">
        {found.length === all.length ? `${all.length} ${all.length === 1 ? "entry" : "entries"}` : `${found.length} of ${all.length} entries`}
      </p>
      <Table label="Cached packages" columns={columns} rows={shown} rowKey={(p) => p.url} rowLabel={nameOf} empty={<Empty title="Nothing in the cache matches" />} />
      {shown.length < found.length && (
        <p className="pk-more">
          <Button onClick={() => setPages(pages + 1)}>Show {Math.min(pageSize, found.length - shown.length)} more</Button>
        </p>
      )}
    </section>
  );
}

/** The part of a policy that turns the cache on. The browser test gives it to the server. */
const snippet = `network:
  hosts:
    - {host: registry.npmjs.org, encoded_slash: true, rules: [{methods: [GET, HEAD], do: allow}]}
packages:
  cache: [npm]
`;

function TurnOn() {
  return (
    <Empty title="The package cache is empty">
      <p>Sandboxes use it if their policy has packages.cache. The policy must also allow the registry. This is for npm:</p>
      <div className="pk-snippet">
        <Code text={snippet} language="yaml" />
        <CopyText text={snippet} label="policy.yaml" />
      </div>
      <p>Other ecosystems are go, apt, pypi, crates and maven.</p>
    </Empty>
  );
}
