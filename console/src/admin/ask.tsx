import { useState } from "react";
import { Button, Dialog, Problem } from "../parts";

export interface AskProps {
  title: string;
  description?: string;
  /** The text of the button that sends the form. */
  action: string;
  /** Whether the form may be sent. */
  ready: boolean;
  onClose: () => void;
  /** Sends the form. If it fails, the dialog stays open and shows the error. */
  onDo: () => Promise<void>;
  children: React.ReactNode;
}

/** A dialog with a form and a button that sends it. */
export function Ask({ title, description, action, ready, onClose, onDo, children }: AskProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const send = async () => {
    if (busy || !ready) return;
    setBusy(true);
    setError(undefined);
    try {
      await onDo();
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={title}
      {...(description ? { description } : {})}
      open
      onOpenChange={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" busy={busy} disabled={!ready} onClick={() => void send()}>
            {action}
          </Button>
        </>
      }
    >
      <form
        className="d-form"
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        {children}
        {error !== undefined && <Problem error={error} />}
      </form>
    </Dialog>
  );
}
