import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, base, read, type Schemas, unwrap } from "../../api/client";
import { asProblem } from "../../api/problem";
import { useCan } from "../../api/session";
import { Badge, Button, Empty, format, Icon, IconButton, Inert, inertLine, Loading, Menu, Problem, Select, Time, toast } from "../../parts";
import { hasEnded, snapshotsQuery, useSandbox } from "../queries";
import { useFilters } from "../search";
import { lineage } from "../snapshots/tree";
import { ApplyDialog } from "./apply";
import { DiffText } from "./diff";

type Change = Schemas["Change"];

const flagLabels: Record<string, string> = {
  protected: "protected", runs_by_itself: "runs by itself", link_out: "leads outside", setuid: "setuid", special: "special file", conflict: "conflict", too_large: "too large",
};

/** The changes since the start, or since a snapshot. */
export function Changes() {
  const sandbox = useSandbox();
  const can = useCan("operator");
  const [filters, set] = useFilters();
  const [dir, setDir] = useState(filters.dir ?? "");
  const [applying, setApplying] = useState(false);
  const since = filters.since ?? "start";
  const query = { since, text: true, ...(filters.dir ? { dir: filters.dir } : {}) };
  const changes = useQuery({
    queryKey: ["changes", sandbox.id, since, filters.dir ?? ""],
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{id}/changes", { params: { path: { id: sandbox.id }, query } })),
    retry: false, staleTime: 5000, placeholderData: keepPreviousData,
  });
  const snapshots = useQuery(snapshotsQuery);
  const own = lineage(snapshots.data ?? [], sandbox.id, sandbox.origin);
  const all = changes.data?.changes ?? [];
  const current = all.find((one) => one.path === filters.path) ?? all.find((one) => one.text) ?? all[0];
  const options = [
    { value: "start", label: "its start" },
    ...own.map((one) => ({ value: one.id, label: `${inertLine(one.name || one.id).text} (${format.localTime(new Date(one.created_at))})` })),
    ...(since !== "start" && !own.some((one) => one.id === since) ? [{ value: since, label: inertLine(since).text }] : []),
  ];
  const flagged = all.some((one) => (one.flags ?? []).length > 0);
  const download = async (kind: "tar" | "patch", withFlagged: boolean) => {
    // With the digest, the server exports exactly the listed changes or none. If flagged files are
    // left out, the digest of the list does not fit.
    const exact = changes.data && (withFlagged || !flagged) ? { digest: changes.data.digest } : {};
    const search = new URLSearchParams({ format: kind, since, ...(filters.dir ? { dir: filters.dir } : {}), ...exact, ...(withFlagged ? { protected: "true" } : {}) });
    const response = await fetch(`${base}/v1/sandboxes/${encodeURIComponent(sandbox.id)}/export?${search}`, { credentials: "same-origin" });
    if (!response.ok) return read<never>(response);
    const url = URL.createObjectURL(new Blob([await response.arrayBuffer()], { type: "application/octet-stream" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${sandbox.id}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    return undefined;
  };
  const save = (kind: "tar" | "patch", withFlagged = false) => {
    download(kind, withFlagged).catch((thrown: unknown) => toast(`${asProblem(thrown).text} ${asProblem(thrown).hint}`.trim(), { tone: "bad" }));
  };
  return (
    <div className="sb-changes">
      <div className="sb-bar">
        <label className="sb-inline">
          Since <Select label="Since" value={since} options={options} onChange={(value) => set({ since: value === "start" ? undefined : value, path: undefined })} />
        </label>
        <form
          className="sb-inline"
          onSubmit={(event) => {
            event.preventDefault();
            set({ dir: dir || undefined, path: undefined });
          }}
        >
          <label htmlFor="sb-dir">Directory</label>
          <input id="sb-dir" type="text" className="mono" placeholder="/workspace" value={dir} onChange={(event) => setDir(event.currentTarget.value)} onBlur={() => (dir || undefined) !== filters.dir && set({ dir: dir || undefined, path: undefined })} />
        </form>
        <IconButton icon="refresh" label="Compare again" onClick={() => void changes.refetch()} />
        <span className="sb-fill" />
        {changes.isFetching && <Loading what="Comparing" />}
        {can && all.length > 0 && (
          <>
            <Menu
              label="Export"
              trigger={
                <Button icon="download" aria-haspopup="menu">
                  Export
                </Button>
              }
              head={flagged && <span className="quiet">Flagged files are not included by default</span>}
              items={[
                { label: "As a patch", onSelect: () => save("patch") },
                { label: "As a tar", onSelect: () => save("tar") },
                ...(flagged
                  ? [
                      { label: "As a patch, with flagged files", danger: true, onSelect: () => save("patch", true) },
                      { label: "As a tar, with flagged files", danger: true, onSelect: () => save("tar", true) },
                    ]
                  : []),
              ]}
            />
            {sandbox.workspace && since === "start" && !filters.dir && (
              <Button variant="primary" onClick={() => setApplying(true)}>
                Apply
              </Button>
            )}
          </>
        )}
      </div>
      {changes.error && !changes.isFetching && hasEnded(sandbox) && asProblem(changes.error).code === "sandbox_not_running" ? (
        <Empty title="No changes were retained">It has ended. Changes that were not retained or exported are lost with the sandbox.</Empty>
      ) : changes.error && !changes.isFetching ? (
        <Problem error={changes.error} retry={() => void changes.refetch()} />
      ) : !changes.data ? (
        <Loading what="Comparing" />
      ) : all.length === 0 ? (
        <Empty title="Nothing was changed">No file in {inertLine(changes.data.dir).text} has changed.</Empty>
      ) : (
        <>
          <p className="sb-stat" role="status">
            {changes.data.files === 1 ? "1 file" : `${changes.data.files} files`} changed in <span className="mono">{inertLine(changes.data.dir).text}</span>,{" "}
            <span className="sb-added">+{changes.data.added}</span> <span className="sb-removed">−{changes.data.removed}</span>
            <span className="quiet">
              {" "}
              · compared <Time at={changes.data.taken_at} relative />
              {changes.data.retained ? " · retained when it ended" : ""}
              {changes.data.truncated ? " · there are more than are listed" : ""}
            </span>
          </p>
          <div className="sb-split">
            <ul className="sb-side sb-picks" aria-label="Changed files">
              {all.slice(0, 2000).map((one) => (
                <ChangeItem key={one.path} change={one} current={one === current} choose={() => set({ path: one.path })} />
              ))}
            </ul>
            <div className="sb-main">{current && <ChangeView change={current} />}</div>
          </div>
        </>
      )}
      {applying && <ApplyDialog close={() => setApplying(false)} />}
    </div>
  );
}

function ChangeItem({ change, current, choose }: { change: Change; current: boolean; choose: () => void }) {
  return (
    <li>
      <button type="button" aria-current={current || undefined} onClick={choose}>
        <span className="mono">
          <Op op={change.op} /> <Inert text={change.path} />
        </span>
        <span className="quiet">
          {change.op} {change.binary ? "bytes" : <Counts change={change} />}
        </span>
        <Flags flags={change.flags} />
      </button>
    </li>
  );
}

function Op({ op }: { op: string }) {
  return <Icon name={op === "created" ? "plus" : op === "removed" ? "trash" : "edit"} size={12} />;
}

function Counts({ change }: { change: Change }) {
  return (
    <>
      <span className="sb-added">+{change.added}</span> <span className="sb-removed">−{change.removed}</span>
    </>
  );
}

export function Flags({ flags }: { flags: string[] | null | undefined }) {
  if (!flags || flags.length === 0) return null;
  return (
    <span className="sb-flags">
      {flags.map((flag) => (
        <Badge key={flag} tone="warn" icon="alert">
          {flagLabels[flag] ?? flag}
        </Badge>
      ))}
    </span>
  );
}

function ChangeView({ change }: { change: Change }) {
  return (
    <section aria-label="Change">
      <div className="sb-bar">
        <h2 className="mono">
          <Inert text={change.path} />
        </h2>
        <span className="quiet">
          {change.op} · {change.type} {change.mode} · {format.bytes(change.size)}
        </span>
        <Flags flags={change.flags} />
      </div>
      {change.target && (
        <p>
          A link to{" "}
          <span className="mono">
            <Inert text={change.target} />
          </span>
        </p>
      )}
      {change.text ? <DiffText key={change.path} text={change.text} path={change.path} /> : <Empty title={change.binary ? "Its content is not text" : change.type === "dir" ? "This is a directory" : "No text to show"}>{change.type === "file" && !change.binary ? "Its content is the same, too large, or kept inside by the policy." : undefined}</Empty>}
    </section>
  );
}
