import { AlertDialog as Alert, Dialog as Radix } from "radix-ui";
import { type ReactNode, useState } from "react";
import { Button, IconButton } from "./button";
import { Problem } from "./page";

export interface DialogProps {
  title: string;
  description?: string;
  open: boolean;
  onOpenChange: (open: boolean) => void;
  children?: ReactNode;
  footer?: ReactNode;
  wide?: boolean;
  /** Only its buttons close it, because its content cannot be shown again. */
  stays?: boolean;
}

export function Dialog({ title, description, open, onOpenChange, children, footer, wide, stays }: DialogProps) {
  const keepOpen = (event: Event) => {
    if (stays) event.preventDefault();
  };
  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className="p-veil" />
        <Radix.Content
          className={wide ? "p-dialog p-dialog-wide" : "p-dialog"}
          onInteractOutside={keepOpen}
          onEscapeKeyDown={keepOpen}
          {...(description ? {} : { "aria-describedby": undefined })}
        >
          <header>
            <Radix.Title>{title}</Radix.Title>
            <Radix.Close asChild>
              <IconButton icon="close" label="Close" />
            </Radix.Close>
          </header>
          {description && <Radix.Description className="quiet">{description}</Radix.Description>}
          <div className="p-dialog-body">{children}</div>
          {footer && <footer>{footer}</footer>}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

export interface ConfirmProps {
  title: string;
  /** The exact effect of the action. */
  what: ReactNode;
  /** The text of the button that confirms. */
  action: string;
  danger?: boolean;
  open: boolean;
  onOpenChange: (open: boolean) => void;
  /** Performs the action. If it fails, the dialog stays open and shows the error. */
  onConfirm: () => unknown;
}

/** Asks for confirmation of an action that cannot be undone. */
export function Confirm({ title, what, action, danger, open, onOpenChange, onConfirm }: ConfirmProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const change = (next: boolean) => {
    if (busy) return;
    setError(undefined);
    onOpenChange(next);
  };
  const confirm = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await onConfirm();
      onOpenChange(false);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Alert.Root open={open} onOpenChange={change}>
      <Alert.Portal>
        <Alert.Overlay className="p-veil" />
        <Alert.Content className="p-dialog">
          <header>
            <Alert.Title>{title}</Alert.Title>
          </header>
          <Alert.Description asChild>
            <div className="p-dialog-body">{what}</div>
          </Alert.Description>
          {error !== undefined && <Problem error={error} />}
          <footer>
            <Alert.Cancel asChild>
              <Button>Cancel</Button>
            </Alert.Cancel>
            <Button variant={danger ? "danger" : "primary"} busy={busy} onClick={() => void confirm()}>
              {action}
            </Button>
          </footer>
        </Alert.Content>
      </Alert.Portal>
    </Alert.Root>
  );
}
