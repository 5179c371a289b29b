import type { ButtonHTMLAttributes, Ref } from "react";
import { Icon, type IconName } from "./icon";

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  variant?: "primary" | "plain" | "danger" | "quiet";
  /** The action is in progress; a second press does nothing. */
  busy?: boolean;
  icon?: IconName;
  ref?: Ref<HTMLButtonElement>;
}

export function Button({ variant = "plain", busy = false, icon, className, children, onClick, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={`p-button p-button-${variant}${className ? ` ${className}` : ""}`}
      aria-busy={busy || undefined}
      aria-disabled={busy || undefined}
      onClick={busy ? (e) => e.preventDefault() : onClick}
    >
      {busy ? <span className="p-spinner" aria-hidden="true" /> : icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export interface IconButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  /** Its name, also shown on hover. */
  label: string;
  icon: IconName;
  ref?: Ref<HTMLButtonElement>;
}

export function IconButton({ label, icon, className, ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      title={label}
      {...rest}
      aria-label={label}
      className={`p-icon-button${className ? ` ${className}` : ""}`}
    >
      <Icon name={icon} />
    </button>
  );
}

/** A key, as the help shows it. */
export function Kbd({ children }: { children: string }) {
  return <kbd className="p-kbd">{children}</kbd>;
}
