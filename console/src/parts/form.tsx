import { type ReactElement, type ReactNode, cloneElement, isValidElement, useId } from "react";

export interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: string | undefined;
  /** The control. It receives the IDs of its label and of its description. */
  children: ReactNode;
}

interface Described {
  id?: string;
  "aria-describedby"?: string | undefined;
  "aria-invalid"?: boolean | undefined;
}

export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const described = [hint ? `${id}-hint` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ") || undefined;
  const control = isValidElement(children)
    ? cloneElement(children as ReactElement<Described>, {
        id,
        "aria-describedby": described,
        "aria-invalid": error ? true : undefined,
      })
    : children;
  return (
    <div className="p-field">
      <label htmlFor={id}>{label}</label>
      {control}
      {hint && (
        <p id={`${id}-hint`} className="quiet">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} className="p-field-error">
          {error}
        </p>
      )}
    </div>
  );
}

export interface SelectProps {
  /** The control's name for screen readers; a Field around it may give another. */
  label: string;
  value: string;
  options: readonly (string | { value: string; label: string })[];
  onChange: (value: string) => void;
  id?: string;
  disabled?: boolean;
  "aria-describedby"?: string | undefined;
}

export function Select({ label, value, options, onChange, ...rest }: SelectProps) {
  return (
    <select
      className="p-select"
      {...rest}
      aria-label={rest.id ? undefined : label}
      value={value}
      onChange={(e) => onChange(e.currentTarget.value)}
    >
      {options.map((option) => {
        const o = typeof option === "string" ? { value: option, label: option } : option;
        return (
          <option key={o.value} value={o.value}>
            {o.label}
          </option>
        );
      })}
    </select>
  );
}

export function Toggle({ label, on, onChange, disabled }: { label: string; on: boolean; onChange: (on: boolean) => void; disabled?: boolean }) {
  return (
    <button type="button" role="switch" aria-checked={on} className="p-toggle" disabled={disabled} onClick={() => onChange(!on)}>
      <span className="p-toggle-track" aria-hidden="true" />
      {label}
    </button>
  );
}
