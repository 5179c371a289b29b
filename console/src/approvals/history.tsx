import { Link, useNavigate } from "@tanstack/react-router";
import { Inert, Problem, Table, Time, type Column } from "../parts";
import { RequestState } from "./card";
import { useDecided } from "./decide";
import { kindName, partsOf, type ApprovalRequest } from "./request";

const columns: Column<ApprovalRequest>[] = [
  { id: "state", header: "Decision", cell: (q) => <RequestState state={q.state} /> },
  {
    id: "what",
    header: "What",
    cell: (q) => (
      <>
        <span className="quiet">{kindName(q.kind)} </span>
        <Link to="/approvals/$id" params={{ id: q.id }}>
          <Inert text={partsOf(q).what} />
        </Link>
      </>
    ),
  },
  {
    id: "who",
    header: "Who",
    cell: (q) => {
      const last = q.votes?.at(-1);
      return last ? <Inert text={last.who} /> : <span className="quiet">no decision</span>;
    },
  },
  { id: "reason", header: "Reason", cell: (q) => <Inert text={q.reason ?? ""} /> },
  { id: "when", header: "When", align: "end", cell: (q) => <Time at={q.decided_at ?? q.expires_at} relative /> },
];

/** Requests that were decided lately, or expired. */
export function Decided({ stamp }: { stamp: string }) {
  const decided = useDecided(stamp);
  const navigate = useNavigate();
  return (
    <section className="a-history p-stack" aria-labelledby="a-decided">
      <h2 id="a-decided">Recent decisions</h2>
      {decided.error && <Problem error={decided.error} retry={() => void decided.refetch()} />}
      {decided.data && (
        <Table
          label="Recent decisions"
          columns={columns}
          rows={decided.data}
          rowKey={(q) => q.id}
          rowLabel={(q) => `${q.state}: ${partsOf(q).what}`}
          onOpen={(q) => void navigate({ to: "/approvals/$id", params: { id: q.id } })}
          empty={<p className="quiet">None yet.</p>}
        />
      )}
    </section>
  );
}
