import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "../api/client";
import { useCan, useSession } from "../api/session";
import { Badge, Empty, Inert, Loading, Page, Problem, Table, Time, Toggle, type Column } from "../parts";
import "./admin.css";

interface Setting {
  name: string;
  value: string;
  origin: string;
  help: string;
}

const columns: Column<Setting>[] = [
  {
    id: "name",
    header: "Setting",
    width: "52%",
    cell: (s) => (
      <>
        <code>{s.name}</code>
        <p className="quiet">{s.help}</p>
      </>
    ),
  },
  { id: "value", header: "Value", cell: (s) => (s.value === "" ? <span className="quiet">none</span> : <code className="d-value"><Inert text={s.value} /></code>) },
  { id: "origin", header: "From", cell: (s) => (s.origin === "default" ? <span className="quiet">default</span> : <Badge tone="info">{s.origin}</Badge>) },
];

/** The settings of the running server, and where each value came from. */
export function SettingsPage() {
  const isAdmin = useCan("admin");
  const session = useSession();
  const [changed, setChanged] = useState(false);
  const settings = useQuery({ queryKey: ["settings"], queryFn: async () => (await call<{ settings: Setting[] | null }>("GET", "/settings")).settings ?? [], enabled: isAdmin });
  const rows = settings.data?.filter((s) => !changed || s.origin !== "default") ?? [];
  return (
    <Page title="Settings" actions={isAdmin && <Toggle label="Only changed settings" on={changed} onChange={setChanged} />}>
      {session && (
        <p className="quiet">
          {session.version} · engine {session.engine.name} ({session.engine.boundary}) · runs since <Time at={session.server_started} />
        </p>
      )}
      {!isAdmin && <Empty title="Settings are for admins">Settings name files and addresses of the server's machine.</Empty>}
      {settings.error && <Problem error={settings.error} retry={() => void settings.refetch()} />}
      {isAdmin && settings.isPending && <Loading />}
      {settings.data && (
        <div className="d-section p-stack">
          <Table label="Settings" columns={columns} rows={rows} rowKey={(s) => s.name} rowLabel={(s) => s.name} empty={<p className="quiet">Every setting has its default value.</p>} />
          <p className="quiet">The server reads its settings at the start: from a file, the environment and flags. Values of secrets are not shown.</p>
        </div>
      )}
    </Page>
  );
}
