import { useNavigate, useSearch } from "@tanstack/react-router";
import { useQueryClient } from "@tanstack/react-query";
import type { EditorView } from "@codemirror/view";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useCan } from "../api/session";
import { Button, Field, Icon, Inert, inertLine, Loading, Menu, Page, Problem, Select, TabBar, toast } from "../parts";
import { ApplyDialog } from "./applying";
import { Compare, type NamedDocument } from "./compare";
import { goToLine, openEditor, replaceAll } from "./editor";
import { Explain, type Subject } from "./explain";
import { headline, type Finding } from "./lint";
import "./policy.css";
import { lint, usePolicyOf, usePresets, useRunning, useSchema, useVersions } from "./read";
import type { Schema } from "./schema";
import { readSearch } from "./search";
import { Versions } from "./versions";

const initialDraft = `policy: v1
name: my-policy
level: standard
network:
  hosts:
    - host: api.github.com
      rules:
        - {id: read, methods: [GET, HEAD], do: allow}
        - {id: write, methods: [POST, PUT, PATCH, DELETE], do: ask}
`;

// The draft is kept outside of the page, so that visiting another page does not lose it.
let savedDraft = initialDraft;

/** The policy editor: write, check, explain, compare, apply. */
export function PolicyPage() {
  const search = readSearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  const isOperator = useCan("operator");
  const queries = useQueryClient();
  const schema = useSchema();
  const presets = usePresets();
  const running = useRunning();
  const policy = usePolicyOf(search.sandbox);
  const versions = useVersions(search.sandbox);
  const [draft, setDraft] = useState(savedDraft);
  const [found, setFound] = useState<{ of: string; problems: readonly Finding[] } | null>(null);
  const [error, setError] = useState<unknown>();
  const [applying, setApplying] = useState(false);
  const view = useRef<EditorView | null>(null);

  const change = useCallback((document: string) => {
    savedDraft = document;
    setDraft(document);
  }, []);
  const check = useCallback(async (document: string): Promise<readonly Finding[]> => {
    try {
      const problems = (await lint(document)).problems ?? [];
      setError(undefined);
      setFound({ of: document, problems });
      return problems;
    } catch (e) {
      setError(e);
      return [];
    }
  }, []);

  const sandbox = running.data?.find((s) => s.id === search.sandbox || s.name === search.sandbox);
  const texts = useMemo((): NamedDocument[] => {
    const out: NamedDocument[] = [];
    if (policy.data) {
      out.push({ id: "effective", label: "the effective policy", document: policy.data.document });
      policy.data.layers?.forEach((l, i) => out.push({ id: `layer-${i}`, label: `its layer ${i + 1}: ${l.kind}`, document: l.document }));
    }
    for (const v of versions.data ?? []) if (v.document && v.digest !== policy.data?.digest) out.push({ id: v.digest, label: `version of entry ${v.seq}`, document: v.document });
    for (const p of presets.data ?? []) out.push({ id: p.name, label: `preset ${p.name}`, document: p.document });
    return out;
  }, [policy.data, versions.data, presets.data]);
  const subjects = useMemo((): Subject[] => {
    const all: Subject[] = [{ label: "the draft", of: () => ({ document: savedDraft }) }];
    if (search.sandbox) all.push({ label: `the policy of ${inertLine(sandbox?.name || search.sandbox).text}`, of: () => ({ sandbox: search.sandbox ?? "" }) });
    return all;
  }, [search.sandbox, sandbox?.name]);

  const start = (t: NamedDocument) => {
    if (view.current) replaceAll(view.current, t.document);
    change(t.document);
    toast(`The draft is now ${t.label}. Undo restores the previous one.`);
  };
  // A user who opens this page from a sandbox, and has no draft, starts from the requested policy
  // of that sandbox.
  const taskDocument = policy.data?.layers?.find((l) => l.kind === "task")?.document;
  useEffect(() => {
    if (taskDocument === undefined || savedDraft !== initialDraft) return;
    if (view.current) replaceAll(view.current, taskDocument);
    change(taskDocument);
  }, [taskDocument, change]);
  const isChecked = found?.of === draft;
  const errors = found?.problems.filter((p) => p.severity !== "warning" && p.severity !== "info").length ?? 0;
  const blocked = !isChecked ? "The draft is being checked" : errors > 0 ? "The draft has errors" : !sandbox ? "Choose a running sandbox" : "";
  const diff = search.view === "diff";

  return (
    <Page
      title="Policy"
      actions={
        isOperator && (
          <Button variant="primary" disabled={blocked !== ""} title={blocked || undefined} onClick={() => setApplying(true)}>
            Apply…
          </Button>
        )
      }
    >
      <div className="y-bar">
        <Field label="Sandbox">
          <Select
            label="Sandbox"
            value={sandbox?.id ?? search.sandbox ?? ""}
            options={[{ value: "", label: "none" }, ...(running.data ?? []).map((s) => ({ value: s.id, label: s.name ? `${inertLine(s.name).text} (${s.id})` : s.id })), ...(search.sandbox && !sandbox ? [{ value: search.sandbox, label: inertLine(search.sandbox).text }] : [])]}
            onChange={(id) => void navigate({ to: "/policy", search: readSearch({ ...search, sandbox: id }), replace: true })}
          />
        </Field>
        <Menu
          label="Start from"
          items={texts.map((t) => ({ label: t.label, onSelect: () => start(t) }))}
          trigger={
            <Button icon="template">
              Start from <Icon name="chevron-down" size={12} />
            </Button>
          }
        />
        <TabBar
          label="Draft"
          current={diff ? "diff" : "edit"}
          tabs={[
            { id: "edit", label: "Edit", to: address(search.sandbox) },
            { id: "diff", label: "Difference", to: address(search.sandbox, "diff") },
          ]}
        />
      </div>
      {policy.error && <Problem error={policy.error} />}
      <div className="y-split">
        <div className="y-main">
          {schema.error && <Problem error={schema.error} retry={() => void schema.refetch()} />}
          {diff ? (
            <Compare draft={draft} texts={texts} against={search.against} onAgainst={(against) => void navigate({ to: "/policy", search: { ...search, against }, replace: true })} />
          ) : schema.data ? (
            <Editor schema={schema.data} document={draft} lint={check} onChange={change} view={view} />
          ) : (
            !schema.error && <Loading />
          )}
        </div>
        <div className="y-side">
          <section className="y-panel" aria-labelledby="y-problems">
            <h2 id="y-problems">Problems</h2>
            {error !== undefined && <Problem error={error} />}
            <p role="status" className="quiet">
              {isChecked && found ? headline(found.problems) : error === undefined ? "Checking…" : ""}
            </p>
            {isChecked && found && found.problems.length > 0 && (
              <ul className="y-problems">
                {found.problems.map((p, i) => (
                  <li key={i} data-severity={p.severity}>
                    <Icon name={p.severity === "warning" ? "info" : "alert"} size={14} />
                    <button type="button" disabled={diff} onClick={() => view.current && goToLine(view.current, p.line)}>
                      Line {p.line}
                    </button>
                    <span>
                      {p.path && (
                        <code>
                          <Inert text={p.path} />
                        </code>
                      )}{" "}
                      <Inert text={p.text} />
                    </span>
                  </li>
                ))}
              </ul>
            )}
          </section>
          <Explain key={search.sandbox ?? ""} subjects={subjects} />
          {versions.data && versions.data.length > 0 && <Versions versions={versions.data} />}
        </div>
      </div>
      {applying && sandbox && (
        <ApplyDialog
          sandbox={sandbox}
          document={draft}
          warnings={(found?.problems.length ?? 0) - errors}
          onClose={() => setApplying(false)}
          onApplied={() => {
            toast(`Applied to ${sandbox.name || sandbox.id}.`, { tone: "ok" });
            void queries.invalidateQueries({ queryKey: ["policy"] });
          }}
        />
      )}
    </Page>
  );
}

function address(sandbox: string | undefined, view?: "diff"): string {
  const q = new URLSearchParams();
  if (sandbox) q.set("sandbox", sandbox);
  if (view) q.set("view", view);
  const text = q.toString();
  return text ? `/policy?${text}` : "/policy";
}

interface EditorProps {
  schema: Schema;
  document: string;
  lint: (document: string) => Promise<readonly Finding[]>;
  onChange: (document: string) => void;
  view: React.RefObject<EditorView | null>;
}

function Editor({ schema, document, lint: check, onChange, view }: EditorProps) {
  const parent = useRef<HTMLDivElement>(null);
  const first = useRef(document);
  useEffect(() => {
    if (!parent.current) return;
    const opened = openEditor(parent.current, { document: first.current, schema, lint: check, onChange, readOnly: false });
    view.current = opened;
    return () => {
      view.current = null;
      opened.destroy();
    };
  }, [schema, check, onChange, view]);
  return <div ref={parent} className="y-editor" data-keys="own" />;
}
