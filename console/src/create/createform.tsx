import { useQuery } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { api, call, unwrap, type Schemas } from "../api/client";
import { asProblem } from "../api/problem";
import { Button, Field, Problem, Select } from "../parts";
import { bodyOf, emptyForm, fieldFor, type FieldErrors, type FieldName, type Form } from "./form";

interface Template {
  id: string;
  name: string;
}

const levels = [
  { value: "", label: "standard (default)" },
  { value: "strict", label: "strict: only listed hosts" },
  { value: "standard", label: "standard: asks about other hosts" },
  { value: "light", label: "light: reads freely, asks about writes" },
  { value: "minimal", label: "minimal: open, and logged" },
];

const nets = [
  { value: "none", label: "none: no network at all" },
  { value: "policy", label: "policy: the level and the hosts below decide" },
  { value: "dev", label: "dev: registries, git forges, model APIs" },
  { value: "open", label: "open: every public host" },
];

/** The form for a new sandbox. */
export function CreateForm({ onCreated, template }: { onCreated: (created: Schemas["Sandbox"]) => void; template: string | undefined }) {
  const [form, setForm] = useState<Form>({ ...emptyForm, template: template ?? "" });
  const [wrong, setWrong] = useState<FieldErrors>({});
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const element = useRef<HTMLFormElement>(null);
  const list = useId();
  const templates = useQuery({ queryKey: ["templates"], queryFn: async () => (await call<{ templates: Template[] | null }>("GET", "/templates")).templates ?? [] });
  const set = (name: FieldName) => (value: string) => {
    setForm((f) => ({ ...f, [name]: value }));
    setWrong(({ [name]: _, ...rest }) => rest);
  };
  const show = (errors: FieldErrors) => {
    setWrong(errors);
    // Move the focus to the error, for users of screen readers.
    requestAnimationFrame(() => element.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
  };
  const create = async () => {
    if (busy) return;
    setError(undefined);
    const { body, errors } = bodyOf(form);
    if (Object.keys(errors).length > 0) {
      show(errors);
      return;
    }
    setBusy(true);
    try {
      onCreated(await unwrap(api.POST("/v1/sandboxes", { body })));
    } catch (e) {
      const problem = asProblem(e);
      const field = fieldFor(problem);
      if (field) show({ [field]: problem.hint ? `${problem.text} (${problem.hint})` : problem.text });
      else setError(e);
    } finally {
      setBusy(false);
    }
  };
  const text = (name: FieldName, label: string, hint?: string, placeholder = "") => (
    <Field label={label} hint={hint} error={wrong[name]}>
      <input type="text" autoComplete="off" spellCheck={false} placeholder={placeholder} value={form[name]} onChange={(e) => set(name)(e.target.value)} />
    </Field>
  );
  return (
    <form
      ref={element}
      className="c-form"
      onSubmit={(e) => {
        e.preventDefault();
        void create();
      }}
    >
      <div className="c-two">
        {text("name", "Name", "Unique among running sandboxes. May be left empty.")}
        <Field label="Template" hint="A template, or a snapshot's ID or name. Empty means the programs of this host." error={wrong.template}>
          <input type="text" list={list} autoComplete="off" spellCheck={false} value={form.template} onChange={(e) => set("template")(e.target.value)} />
        </Field>
        <datalist id={list}>
          {templates.data?.map((t) => (
            <option key={t.id} value={t.name} />
          ))}
        </datalist>
        <Field label="Level" error={wrong.level}>
          <Select label="Level" value={form.level} options={levels} onChange={set("level")} />
        </Field>
        <Field label="Network" error={wrong.net}>
          <Select label="Network" value={form.net} options={nets} onChange={set("net")} />
        </Field>
      </div>
      {form.net !== "none" && (
        <Field label="Allowed hosts" hint="One per line: example.com, or example.com:8443." error={wrong.allow}>
          <textarea rows={3} className="mono" spellCheck={false} value={form.allow} onChange={(e) => set("allow")(e.target.value)} />
        </Field>
      )}
      <details open={["memory", "cpu", "pids", "disk", "timeout", "metadata", "policy"].some((n) => wrong[n as FieldName]) || undefined}>
        <summary>Limits, time, metadata, policy</summary>
        <div className="c-more">
          <div className="c-two">
            {text("memory", "Memory", undefined, "server's default, or 512M")}
            {text("cpu", "Processors", undefined, "server's default, or 0.5")}
            {text("disk", "Disk", undefined, "server's default, or 2G")}
            {text("pids", "Processes and threads", undefined, "server's default, or 256")}
            {text("timeout", "Ends after", undefined, "server's default, or 1h30m")}
          </div>
          <Field label="Metadata" hint="One per line: team=payments." error={wrong.metadata}>
            <textarea rows={3} className="mono" spellCheck={false} value={form.metadata} onChange={(e) => set("metadata")(e.target.value)} />
          </Field>
          <Field label="Policy document" hint="YAML. The policy page checks it by line. If it is empty, the level and the network decide." error={wrong.policy}>
            <textarea rows={6} className="mono" spellCheck={false} value={form.policy} onChange={(e) => set("policy")(e.target.value)} />
          </Field>
        </div>
      </details>
      {error !== undefined && <Problem error={error} />}
      <div>
        <Button variant="primary" busy={busy} onClick={() => void create()}>
          Create
        </Button>
      </div>
    </form>
  );
}
