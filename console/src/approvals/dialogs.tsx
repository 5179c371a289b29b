import { useState } from "react";
import { Button, Confirm, Dialog, Field, Inert, inertLine, Problem } from "../parts";
import { sendAll, type Decision, type Failed } from "./decide";
import { alwaysText, partsOf, type ApprovalRequest } from "./request";

const maxReason = 512;

/** Denies a request with a reason, which the program in the sandbox receives. */
export function DenyDialog({ request, onClose, onDeny }: { request: ApprovalRequest; onClose: () => void; onDeny: (reason: string) => Promise<void> }) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const deny = async () => {
    if (reason.trim() === "" || busy) return;
    setBusy(true);
    try {
      await onDeny(reason.trim());
      onClose();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  return (
    <Dialog
      title="Deny"
      open
      onOpenChange={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="danger" busy={busy} disabled={reason.trim() === ""} onClick={() => void deny()}>
            Deny
          </Button>
        </>
      }
    >
      <form
        className="a-form"
        onSubmit={(e) => {
          e.preventDefault();
          void deny();
        }}
      >
        <p>
          <Inert text={partsOf(request).what} />
        </p>
        <ReasonField value={reason} onChange={setReason} />
        {error !== undefined && <Problem error={error} />}
      </form>
    </Dialog>
  );
}

function ReasonField({ value, onChange }: { value: string; onChange: (v: string) => void }) {
  return (
    <Field label="Reason" hint="The agent receives it.">
      <input type="text" autoFocus autoComplete="off" maxLength={maxReason} value={value} onChange={(e) => onChange(e.target.value)} />
    </Field>
  );
}

/** Asks for confirmation before a host is allowed permanently. */
export function AlwaysDialog({ request, onClose, onConfirm }: { request: ApprovalRequest; onClose: () => void; onConfirm: () => Promise<void> }) {
  const what = (
    <div className="a-form">
      <p>
        <strong className="mono a-endpoint">
          <Inert text={request.always ?? ""} />
        </strong>
      </p>
      <p>
        is added to the policy of the sandbox <code>{request.sandbox}</code>, until that is changed or the sandbox ends. {alwaysText} This request is approved too.
      </p>
    </div>
  );
  return <Confirm title="Always allow this host?" what={what} action={`Always allow ${inertLine(request.always ?? "").text}`} open onOpenChange={onClose} onConfirm={onConfirm} />;
}

export interface BulkProps {
  /** The requests that were shown when the dialog was opened. Later ones are not included. */
  requests: readonly ApprovalRequest[];
  names: ReadonlyMap<string, string>;
  onClose: () => void;
  onDecided: (id: string) => void;
}

/** Decides all requests of a rule, each of which is shown. */
export function BulkDialog({ requests, names, onClose, onDecided }: BulkProps) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<Failed[]>([]);
  const decide = async (d: Decision) => {
    if (busy) return;
    setBusy(true);
    const stillFailed = await sendAll(failed.length > 0 ? failed.map((f) => f.request) : requests, d, onDecided);
    setBusy(false);
    setFailed(stillFailed);
    if (stillFailed.length === 0) onClose();
  };
  const count = failed.length > 0 ? failed.length : requests.length;
  return (
    <Dialog
      title={`${requests.length} requests of one rule`}
      description="Each request is decided by itself and once. Requests that arrived after this dialog was opened are not included."
      wide
      open
      onOpenChange={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="danger" busy={busy} disabled={reason.trim() === ""} onClick={() => void decide({ do: "deny", reason: reason.trim() })}>
            Deny all {count}
          </Button>
          <Button variant="primary" busy={busy} onClick={() => void decide({ do: "approve", remember: false })}>
            Approve all {count}
          </Button>
        </>
      }
    >
      <div className="a-form">
        <p>
          Rule{" "}
          <code>
            <Inert text={requests[0]?.rule ?? ""} />
          </code>
        </p>
        <ul className="a-bulk">
          {requests.map((q) => (
            <li key={q.id}>
              <Inert text={partsOf(q).what} />{" "}
              <span className="quiet">
                <Inert text={names.get(q.sandbox) ?? q.sandbox} />
              </span>
            </li>
          ))}
        </ul>
        <Field label="Reason, if you deny" hint="The agents receive it.">
          <input type="text" autoComplete="off" maxLength={maxReason} value={reason} onChange={(e) => setReason(e.target.value)} />
        </Field>
        {failed.map((f) => (
          <div key={f.request.id}>
            <p className="mono">{f.request.id}</p>
            <Problem error={f.error} />
          </div>
        ))}
      </div>
    </Dialog>
  );
}
