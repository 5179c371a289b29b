import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, unwrap } from "../../api/client";
import { Badge, Button, Can, Confirm, format, Icon, Inert, inertLine, Loading, Menu, Problem, Time } from "../../parts";
import { TakeSnapshot, useRollBack } from "../actions";
import { isLive, snapshotsQuery, useRefresh, useSandbox } from "../queries";
import { type Branch, branches, flatten, lineage } from "./tree";

type Snapshot = Schemas["Snapshot"];

/** The origin of a sandbox, and its snapshots. */
export function SnapshotsTab() {
  const sandbox = useSandbox();
  const snapshots = useQuery({ ...snapshotsQuery, refetchInterval: 10_000 });
  const [taking, take] = useState(false);
  if (snapshots.isPending) return <Loading />;
  if (!snapshots.data) return <Problem error={snapshots.error} retry={() => void snapshots.refetch()} />;
  const root = branches(lineage(snapshots.data, sandbox.id, sandbox.origin), sandbox.origin, sandbox.at);
  const count = flatten(root).length - 1;
  return (
    <>
      <div className="sb-bar">
        <Can scope="operator">
          <Button variant="primary" icon="snapshot" disabled={!isLive(sandbox)} onClick={() => take(true)}>
            Take snapshot
          </Button>
        </Can>
        <span className="quiet">
          {count === 1 ? "1 snapshot" : `${count} snapshots`}
          {sandbox.parent && (
            <>
              {" · "}a copy of <Link to="/s/$id/$tab" params={{ id: sandbox.parent, tab: "live" }}>{sandbox.parent}</Link>
            </>
          )}
        </span>
      </div>
      <ul className="sb-snapshots" aria-label="Snapshots">
        <BranchItem branch={root} />
      </ul>
      <TakeSnapshot open={taking} onOpenChange={take} />
    </>
  );
}

/** One snapshot, and below it the snapshots that descend from it. */
function BranchItem({ branch }: { branch: Branch<Snapshot> }) {
  const name = branch.snapshot ? branch.snapshot.name || branch.snapshot.id : "Start";
  return (
    <li aria-label={inertLine(name).text} aria-current={branch.here || undefined}>
      <Row row={branch} />
      {branch.children.length > 0 && (
        <ul>
          {branch.children.map((one) => (
            <BranchItem key={one.snapshot?.id} branch={one} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Row({ row }: { row: Branch<Snapshot> }) {
  const sandbox = useSandbox();
  const navigate = useNavigate();
  const refresh = useRefresh();
  const [dialog, setDialog] = useState<"back" | "remove">();
  const roll = useRollBack(() => setDialog(undefined));
  const { snapshot } = row;
  const name = snapshot ? inertLine(snapshot.name || snapshot.id).text : "Start";
  const running = isLive(sandbox);
  return (
    <div className={row.here ? "sb-snapshot sb-snapshot-here" : "sb-snapshot"}>
      <Icon name={snapshot ? "snapshot" : "template"} />
      <span className="sb-snapshot-name">
        <strong>
          <Inert text={name} />
        </strong>
        {row.here && <Badge tone="ok">current</Badge>}
        {row.origin && snapshot && <Badge tone="info">created from this</Badge>}
        {snapshot && snapshot.sandbox !== sandbox.id && (
          <Badge tone="quiet">
            of <Inert text={snapshot.sandbox} />
          </Badge>
        )}
        <span className="quiet">
          {snapshot ? (
            <>
              <code>{snapshot.id}</code> · <Time at={snapshot.created_at} /> · {snapshot.files_only ? "files only" : "files, memory and processes"} · {format.bytes(snapshot.size_bytes)},{" "}
              {format.bytes(snapshot.own_bytes)} its own
            </>
          ) : (
            <>
              template <Inert text={sandbox.template} />
            </>
          )}
        </span>
      </span>
      <span className="sb-snapshot-actions">
        <Link className="p-button p-button-plain" to="/s/$id/$tab" params={{ id: sandbox.id, tab: "files" }} search={{ view: "changes", ...(snapshot ? { since: snapshot.id } : {}) }}>
          Compare
        </Link>
        <Can scope="operator">
          <Button icon="rollback" disabled={!running} onClick={() => setDialog("back")}>
            Roll back to this
          </Button>
          {snapshot && (
            <Menu
              label={`More about ${name}`}
              items={[
                { label: "New sandbox from this", onSelect: () => void navigate({ to: "/new", search: { template: snapshot.id } }) },
                { label: "Remove", danger: true, onSelect: () => setDialog("remove") },
              ]}
            />
          )}
        </Can>
      </span>
      <Confirm
        open={dialog === "back"} onOpenChange={() => setDialog(undefined)} title={`Roll back to ${name}?`} action="Roll back" danger
        what="All later changes of files and processes in the sandbox are lost. Data that has left the sandbox is not affected. The audit log keeps its entries."
        onConfirm={() => roll.back(snapshot?.id ?? "")}
      />
      <Confirm
        open={dialog === "remove"} onOpenChange={() => setDialog(undefined)} title={`Remove ${name}?`} action="Remove" danger
        what={`No sandbox can be rolled back to it or created from it any more. Sandboxes that were created from it stay. This frees ${format.bytes(snapshot?.own_bytes ?? 0)} on the disk.`}
        onConfirm={async () => {
          await unwrap(api.DELETE("/v1/snapshots/{id}", { params: { path: { id: snapshot?.id ?? "" } } }));
          await refresh("snapshots");
        }}
      />
    </div>
  );
}
