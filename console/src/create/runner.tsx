import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import type { Schemas } from "../api/client";
import { Button, Inert, Kbd, Problem, Select, StateBadge, Time } from "../parts";
import { CellView } from "./output";
import { useCells } from "./running";

const languages = [
  { value: "python", label: "Python" },
  { value: "bash", label: "Bash" },
  { value: "javascript", label: "JavaScript" },
  { value: "typescript", label: "TypeScript" },
  { value: "r", label: "R" },
  { value: "java", label: "Java" },
];

/** Runs cells in a sandbox. Variables stay from one cell to the next. */
export function Runner({ sandbox, error }: { sandbox: Schemas["Sandbox"]; error: unknown }) {
  const { cells, busy, run, interrupt } = useCells(sandbox.id);
  const [language, setLanguage] = useState("python");
  const [code, setCode] = useState("");
  const input = useRef<HTMLTextAreaElement>(null);
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => input.current?.focus(), []);
  useEffect(() => {
    if (cells.length > 0) end.current?.scrollIntoView({ block: "nearest" });
  }, [cells]);

  const go = () => {
    if (busy) return;
    if (code.trim() === "") {
      input.current?.focus();
      return;
    }
    void run(language, code);
    setCode("");
    input.current?.focus();
  };
  return (
    <>
      <p className="c-made">
        <StateBadge state={sandbox.state} />
        <Link to="/s/$id/$tab" params={{ id: sandbox.id, tab: "live" }}>
          <Inert text={sandbox.name || sandbox.id} />
        </Link>
        <span className="quiet">
          <Inert text={sandbox.template} /> · {sandbox.network.level} · network {sandbox.network.net}
          {sandbox.ends_at && (
            <>
              {" "}
              · ends <Time at={sandbox.ends_at} relative />
            </>
          )}
        </span>
      </p>
      {error !== undefined && error !== null && <Problem error={error} />}
      {cells.map((c, i) => (
        <CellView key={c.id} cell={c} n={i + 1} />
      ))}
      <form
        className="c-next"
        onSubmit={(e) => {
          e.preventDefault();
          go();
        }}
      >
        <textarea
          ref={input}
          aria-label="Code"
          className="mono"
          rows={Math.min(Math.max(code.split("\n").length + 1, 5), 24)}
          spellCheck={false}
          autoComplete="off"
          autoCapitalize="off"
          placeholder="import sys; sys.version"
          value={code}
          onChange={(e) => setCode(e.target.value)}
          onKeyDown={(e) => {
            if (e.key !== "Enter" || !(e.ctrlKey || e.metaKey || e.shiftKey)) return;
            e.preventDefault();
            go();
          }}
        />
        <div className="c-bar">
          <Select label="Language" value={language} options={languages} onChange={setLanguage} />
          <Button variant="primary" icon="play" busy={busy} onClick={go}>
            Run
          </Button>
          {busy && (
            <Button variant="danger" icon="stop" onClick={interrupt}>
              Interrupt
            </Button>
          )}
          <span className="c-keys quiet">
            <Kbd>Shift</Kbd> <Kbd>Enter</Kbd> runs it
          </span>
        </div>
      </form>
      <div ref={end} />
    </>
  );
}
