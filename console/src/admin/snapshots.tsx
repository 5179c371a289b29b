import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap, type Schemas } from "../api/client";
import { Badge, Button, Bytes, Can, Confirm, CopyText, Empty, Inert, Loading, Page, Problem, Table, Time, toast, type Column } from "../parts";
import "./admin.css";

type Snapshot = Schemas["Snapshot"];

/** All snapshots, with their sizes. */
export function SnapshotsPage() {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [removing, setRemoving] = useState<Snapshot | null>(null);
  const pages = useInfiniteQuery({
    // This list is read page by page, so its cache key differs from that of the whole list.
    queryKey: ["snapshots", "pages"],
    queryFn: ({ pageParam }) => unwrap(api.GET("/v1/snapshots", { params: { query: pageParam ? { cursor: pageParam } : {} } })),
    initialPageParam: "",
    getNextPageParam: (last) => last.next_cursor,
  });
  const rows = pages.data?.pages.flatMap((p) => p.snapshots ?? []) ?? [];
  const columns: Column<Snapshot>[] = [
    {
      id: "name",
      header: "Snapshot",
      cell: (s) => (
        <>
          {s.name && (
            <div>
              <Inert text={s.name} />
            </div>
          )}
          <CopyText text={s.id} />
        </>
      ),
    },
    { id: "sandbox", header: "Sandbox",
      cell: (s) => (
        <Link to="/s/$id/$tab" params={{ id: s.sandbox, tab: "snapshots" }}>
          <Inert text={s.sandbox} />
        </Link>
      ),
    },
    { id: "content", header: "Content", cell: (s) => (s.files_only ? <Badge tone="quiet">files</Badge> : <Badge tone="info">files and memory</Badge>) },
    { id: "size", header: "Size", align: "end", cell: (s) => <Bytes n={s.size_bytes} /> },
    { id: "own", header: "Frees", align: "end", cell: (s) => <Bytes n={s.own_bytes} /> },
    { id: "when", header: "Taken", align: "end", cell: (s) => <Time at={s.created_at} relative /> },
    {
      id: "do",
      header: "",
      align: "end",
      cell: (s) => (
        <Can scope="operator">
          <span className="d-actions">
            <Button onClick={() => void navigate({ to: "/new", search: { template: s.id } })}>New sandbox</Button>
            <Button variant="danger" onClick={() => setRemoving(s)}>
              Remove
            </Button>
          </span>
        </Can>
      ),
    },
  ];
  return (
    <Page title="Snapshots">
      {pages.error && <Problem error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data && (
        <div className="p-stack">
          <Table
            label="Snapshots"
            columns={columns}
            rows={rows}
            rowKey={(s) => s.id}
            rowLabel={(s) => s.name || s.id}
            empty={<Empty title="No snapshots yet">A snapshot keeps the state of a sandbox, which continues. Take one on the sandbox's page.</Empty>}
          />
        </div>
      )}
      {pages.hasNextPage && (
        <p className="d-end">
          <Button busy={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
            Show older snapshots
          </Button>
        </p>
      )}
      {removing && (
        <Confirm
          title="Remove this snapshot?"
          what={
            <p>
              <code>
                <Inert text={removing.name || removing.id} />
              </code>{" "}
              is removed, which frees <Bytes n={removing.own_bytes} /> on the disk. Sandboxes that were created from it stay.
            </p>
          }
          action="Remove snapshot"
          danger
          open
          onOpenChange={() => setRemoving(null)}
          onConfirm={async () => {
            await unwrap(api.DELETE("/v1/snapshots/{id}", { params: { path: { id: removing.id } } }));
            toast("The snapshot is removed.", { tone: "ok" });
            await queries.invalidateQueries({ queryKey: ["snapshots"] });
          }}
        />
      )}
    </Page>
  );
}
