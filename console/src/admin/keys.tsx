import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap, type Schemas } from "../api/client";
import { Button, Can, Confirm, CopyText, Dialog, Empty, Field, Inert, Loading, Page, Problem, Table, Time, toast, type Column } from "../parts";
import "./admin.css";
import { Ask } from "./ask";
import { Sessions } from "./sessions";

type Key = Schemas["Key"];

/** API keys, and the sessions of this console. */
export function KeysPage() {
  const [creating, setCreating] = useState(false);
  return (
    <Page
      title="Keys"
      actions={
        <Can scope="admin">
          <Button variant="primary" icon="plus" onClick={() => setCreating(true)}>
            New key
          </Button>
        </Can>
      }
    >
      <Can scope="admin" otherwise={<Empty title="Keys are for admins">This session may not list keys.</Empty>}>
        <Keys creating={creating} onCreated={() => setCreating(false)} />
        <Sessions />
      </Can>
    </Page>
  );
}

function Keys({ creating, onCreated }: { creating: boolean; onCreated: () => void }) {
  const queries = useQueryClient();
  const keys = useQuery({ queryKey: ["keys"], queryFn: async () => (await unwrap(api.GET("/v1/keys"))).keys ?? [] });
  const [created, setCreated] = useState<Schemas["NewKey"] | null>(null);
  const [revoking, setRevoking] = useState<Key | null>(null);
  const refresh = () => queries.invalidateQueries({ queryKey: ["keys"] });
  const columns: Column<Key>[] = [
    { id: "name", header: "Name", cell: (k) => (k.name ? <Inert text={k.name} /> : <span className="quiet">none</span>) },
    { id: "id", header: "ID", cell: (k) => <CopyText text={k.id} /> },
    { id: "created", header: "Created", cell: (k) => <Time at={k.created_at} relative /> },
    { id: "used", header: "Last used", cell: (k) => (k.last_used_at ? <Time at={k.last_used_at} relative /> : <span className="quiet">never</span>) },
    {
      id: "do",
      header: "",
      align: "end",
      cell: (k) => (
        <Button variant="danger" onClick={() => setRevoking(k)}>
          Revoke
        </Button>
      ),
    },
  ];
  return (
    <section className="d-section p-stack" aria-labelledby="d-keys">
      <h2 id="d-keys">API keys</h2>
      <p className="quiet">The holder of a key can create sandboxes and sees only those. Only a hash of a key is stored.</p>
      {keys.error && <Problem error={keys.error} retry={() => void keys.refetch()} />}
      {keys.isPending && <Loading />}
      {keys.data && (
        <Table label="API keys" columns={columns} rows={keys.data} rowKey={(k) => k.id} rowLabel={(k) => k.name || k.id} empty={<Empty title="No keys yet">The machine's own user needs no key.</Empty>} />
      )}
      {creating && (
        <NewKey
          onClose={onCreated}
          onCreated={(k) => {
            onCreated();
            setCreated(k);
            void refresh();
          }}
        />
      )}
      {created && <CreatedKey created={created} onClose={() => setCreated(null)} />}
      {revoking && (
        <Confirm
          title="Revoke this key?"
          what={
            <p>
              The key <strong>{revoking.name ? <Inert text={revoking.name} /> : revoking.id}</strong> is no longer accepted. Its sandboxes continue until they end. This cannot be undone.
            </p>
          }
          action="Revoke key"
          danger
          open
          onOpenChange={() => setRevoking(null)}
          onConfirm={async () => {
            await unwrap(api.DELETE("/v1/keys/{id}", { params: { path: { id: revoking.id } } }));
            toast("The key is revoked.", { tone: "ok" });
            await refresh();
          }}
        />
      )}
    </section>
  );
}

function NewKey({ onClose, onCreated }: { onClose: () => void; onCreated: (k: Schemas["NewKey"]) => void }) {
  const [name, setName] = useState("");
  return (
    <Ask
      title="New key"
      action="Create key"
      ready
      onClose={onClose}
      onDo={async () => onCreated(await unwrap(api.POST("/v1/keys", { body: name.trim() ? { name: name.trim() } : {} })))}
    >
      <Field label="Name" hint="The person or program that uses the key. It shows later which key to revoke.">
        <input type="text" autoFocus autoComplete="off" maxLength={63} value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
    </Ask>
  );
}

/** Shows the secret of a new key once. */
function CreatedKey({ created, onClose }: { created: Schemas["NewKey"]; onClose: () => void }) {
  return (
    <Dialog
      title="The new key"
      description="It is shown only once, because only its hash is stored."
      open
      onOpenChange={onClose}
      stays
      footer={
        <Button variant="primary" onClick={onClose}>
          I have copied it
        </Button>
      }
    >
      <div className="d-once">
        <CopyText text={created.secret} />
      </div>
    </Dialog>
  );
}
