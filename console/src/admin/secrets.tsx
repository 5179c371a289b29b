import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap, type Schemas } from "../api/client";
import { Button, Can, Confirm, Empty, Field, Inert, Loading, Page, Problem, Table, Time, toast, type Column } from "../parts";
import "./admin.css";
import { Ask } from "./ask";

type Secret = Schemas["Secret"];
/** The dialog that is open. */
type OpenDialog = { what: "set" } | { what: "rotate" | "remove"; secret: Secret };

/** Secrets: set, rotate and remove. Their values are never shown. */
export function SecretsPage() {
  const [dialog, setDialog] = useState<OpenDialog | null>(null);
  return (
    <Page
      title="Secrets"
      actions={
        <Can scope="admin">
          <Button variant="primary" icon="plus" onClick={() => setDialog({ what: "set" })}>
            New secret
          </Button>
        </Can>
      }
    >
      <Can scope="admin" otherwise={<Empty title="Secrets are for admins">This session may not see their names.</Empty>}>
        <Secrets dialog={dialog} onDialog={setDialog} />
      </Can>
    </Page>
  );
}

function Secrets({ dialog, onDialog }: { dialog: OpenDialog | null; onDialog: (d: OpenDialog | null) => void }) {
  const queries = useQueryClient();
  const secrets = useQuery({ queryKey: ["secrets"], queryFn: async () => (await unwrap(api.GET("/v1/secrets"))).secrets ?? [] });
  const done = (text: string) => {
    onDialog(null);
    toast(text, { tone: "ok" });
    void queries.invalidateQueries({ queryKey: ["secrets"] });
  };
  const columns: Column<Secret>[] = [
    { id: "name", header: "Name", cell: (s) => <code><Inert text={s.name} /></code> },
    { id: "version", header: "Version", cell: (s) => s.version },
    { id: "changed", header: "Changed", cell: (s) => <Time at={s.updated_at} relative /> },
    { id: "created", header: "Created", cell: (s) => <Time at={s.created_at} relative /> },
    {
      id: "do",
      header: "",
      align: "end",
      cell: (s) => (
        <span className="d-actions">
          <Button onClick={() => onDialog({ what: "rotate", secret: s })}>Rotate</Button>
          <Button variant="danger" onClick={() => onDialog({ what: "remove", secret: s })}>
            Remove
          </Button>
        </span>
      ),
    },
  ];
  return (
    <section className="d-section p-stack" aria-label="Secrets">
      <p className="quiet">The egress gateway sets a secret on the requests that a policy binds it to. No sandbox has its value. It cannot be read back.</p>
      {secrets.error && <Problem error={secrets.error} retry={() => void secrets.refetch()} />}
      {secrets.isPending && <Loading />}
      {secrets.data && <Table label="Secrets" columns={columns} rows={secrets.data} rowKey={(s) => s.id} rowLabel={(s) => s.name} empty={<Empty title="No secrets yet" />} />}
      {dialog?.what === "set" && <SetSecret onClose={() => onDialog(null)} onDone={() => done("The secret is stored encrypted.")} />}
      {dialog?.what === "rotate" && <Rotate secret={dialog.secret} onClose={() => onDialog(null)} onDone={() => done("The secret has a new value.")} />}
      {dialog?.what === "remove" && (
        <Confirm
          title="Remove this secret?"
          what={
            <p>
              <code>{dialog.secret.name}</code> and all its values are deleted. A sandbox whose policy binds it continues without any secret of its policy. This cannot be undone.
            </p>
          }
          action="Remove secret"
          danger
          open
          onOpenChange={() => onDialog(null)}
          onConfirm={async () => {
            await unwrap(api.DELETE("/v1/secrets/{id}", { params: { path: { id: dialog.secret.id } } }));
            done("The secret is removed.");
          }}
        />
      )}
    </section>
  );
}

// The server rejects shorter values.
const minBytes = 8;

function Value({ value, onChange }: { value: string; onChange: (v: string) => void }) {
  const short = value !== "" && new TextEncoder().encode(value).length < minBytes;
  return (
    <Field label="Value" hint="It is encrypted at once and never shown again." error={short ? "At least 8 bytes. A shorter value cannot be distinguished from ordinary text and redacted." : undefined}>
      <input type="password" autoComplete="new-password" data-1p-ignore value={value} onChange={(e) => onChange(e.target.value)} />
    </Field>
  );
}

const longEnough = (value: string) => new TextEncoder().encode(value).length >= minBytes;

function SetSecret({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  return (
    <Ask
      title="New secret"
      action="Save"
      ready={name.trim() !== "" && longEnough(value)}
      onClose={onClose}
      onDo={async () => {
        await unwrap(api.POST("/v1/secrets", { body: { name: name.trim(), value } }));
        setValue("");
        onDone();
      }}
    >
      <Field label="Name" hint="The name that policies use: letters, digits, _ and -.">
        <input type="text" autoFocus autoComplete="off" spellCheck={false} maxLength={64} value={name} onChange={(e) => setName(e.target.value)} />
      </Field>
      <Value value={value} onChange={setValue} />
    </Ask>
  );
}

function Rotate({ secret, onClose, onDone }: { secret: Secret; onClose: () => void; onDone: () => void }) {
  const [value, setValue] = useState("");
  return (
    <Ask
      title={`Rotate ${secret.name}`}
      description="Grants for the old value are no longer valid. The old value is still redacted in output for a while."
      action="Save"
      ready={longEnough(value)}
      onClose={onClose}
      onDo={async () => {
        await unwrap(api.POST("/v1/secrets/{id}/rotate", { params: { path: { id: secret.id } }, body: { value } }));
        setValue("");
        onDone();
      }}
    >
      <Value value={value} onChange={setValue} />
    </Ask>
  );
}
