import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "../api/client";
import { Badge, Button, Confirm, CopyText, Inert, Loading, Problem, Table, Time, toast, type Column } from "../parts";

interface ConsoleSession {
  id: string;
  name: string;
  scope: string;
  created_at: string;
  expires_at: string;
  mine: boolean;
}

/** The signed-in sessions of the console. */
export function Sessions() {
  const queries = useQueryClient();
  const sessions = useQuery({ queryKey: ["sessions"], queryFn: async () => (await call<{ sessions: ConsoleSession[] | null }>("GET", "/sessions")).sessions ?? [] });
  const [ending, setEnding] = useState<ConsoleSession | null>(null);
  const columns: Column<ConsoleSession>[] = [
    {
      id: "name",
      header: "Name",
      cell: (s) => (
        <>
          {s.name ? <Inert text={s.name} /> : <span className="quiet">none</span>} {s.mine && <Badge tone="info">this one</Badge>}
        </>
      ),
    },
    { id: "scope", header: "Scope", cell: (s) => s.scope },
    { id: "id", header: "ID", cell: (s) => <CopyText text={s.id} /> },
    { id: "since", header: "Since", cell: (s) => <Time at={s.created_at} relative /> },
    { id: "until", header: "Until", cell: (s) => <Time at={s.expires_at} /> },
    {
      id: "do",
      header: "",
      align: "end",
      cell: (s) => (
        <Button variant="danger" onClick={() => setEnding(s)}>
          End
        </Button>
      ),
    },
  ];
  return (
    <section className="d-section p-stack" aria-labelledby="d-sessions">
      <h2 id="d-sessions">Console sessions</h2>
      <p className="quiet">
        Create another one with <code>crannog console</code> on the server's machine.
      </p>
      {sessions.error && <Problem error={sessions.error} retry={() => void sessions.refetch()} />}
      {sessions.isPending && <Loading />}
      {sessions.data && <Table label="Console sessions" columns={columns} rows={sessions.data} rowKey={(s) => s.id} rowLabel={(s) => s.name || s.id} empty={<p className="quiet">None.</p>} />}
      {ending && (
        <Confirm
          title="End this session?"
          what={
            <p>
              {ending.mine ? "This is your own session: you are signed out at once." : "Its user is signed out at once."} Its streams and terminals close.
            </p>
          }
          action="End session"
          danger
          open
          onOpenChange={() => setEnding(null)}
          onConfirm={async () => {
            await call("DELETE", `/sessions/${encodeURIComponent(ending.id)}`);
            toast("The session has ended.", { tone: "ok" });
            await queries.invalidateQueries({ queryKey: ["sessions"] });
          }}
        />
      )}
    </section>
  );
}
