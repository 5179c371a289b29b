import { useNavigate } from "@tanstack/react-router";
import { Dialog as Radix } from "radix-ui";
import { type KeyboardEvent, useId, useMemo, useState } from "react";
import type { Session } from "../api/console";
import { covers } from "../api/session";
import { title } from "../fleet/search";
import { useApprovals, useFleet } from "../live";
import { Icon, type IconName } from "../parts/icon";
import { Inert } from "../parts/values";
import { best } from "./match";
import { navItems } from "./nav";
import { useNotify } from "./notify";
import { type Theme, setTheme } from "./theme";

interface Command {
  id: string;
  icon: IconName;
  /** The shown text, which is also searched. */
  text: string;
  quiet?: string;
  run: () => void;
}

export interface PaletteProps {
  session: Session;
  open: boolean;
  onOpenChange: (open: boolean) => void;
  onHelp: () => void;
}

/** The command palette: goes to any page and runs commands, by keyboard. */
export function Palette({ session, open, onOpenChange, onHelp }: PaletteProps) {
  const navigate = useNavigate();
  const { rows } = useFleet();
  const { pending } = useApprovals();
  const [notify, setNotify] = useNotify();
  const [typed, setTyped] = useState("");
  const [selected, setSelected] = useState(0);
  const list = useId();

  const commands = useMemo(() => {
    const go = (to: string) => () => void navigate({ to });
    const all: Command[] = navItems
      .filter((p) => !p.scope || covers(session.scope, p.scope))
      .map((p) => ({ id: p.to, icon: p.icon, text: p.label, quiet: p.key ? `g ${p.key}` : "", run: go(p.to) }));
    if (covers(session.scope, "operator")) all.unshift({ id: "new", icon: "plus", text: "New sandbox", run: go("/new") });
    for (const theme of ["light", "dark", "system"] as Theme[]) {
      all.push({ id: `theme-${theme}`, icon: "sun", text: `Theme: ${theme}`, run: () => setTheme(theme) });
    }
    if (notify === "on" || notify === "off") {
      all.push({
        id: "notify",
        icon: "bell",
        text: notify === "on" ? "Desktop notifications: turn off" : "Desktop notifications: turn on",
        run: () => setNotify(notify === "off"),
      });
    }
    all.push({ id: "help", icon: "help", text: "Keyboard shortcuts", quiet: "?", run: onHelp });
    return all;
  }, [navigate, session.scope, notify, setNotify, onHelp]);

  const sandboxes = useMemo(
    () =>
      rows.map((row): Command => ({
        id: row.id,
        icon: "box",
        text: title(row),
        quiet: `${row.state} · ${row.id}`,
        run: () => void navigate({ to: "/s/$id/$tab", params: { id: row.id, tab: "live" } }),
      })),
    [rows, navigate],
  );
  const requests = useMemo(
    () =>
      pending.map((a): Command => ({
        id: a.id,
        icon: "approvals",
        text: a.summary,
        quiet: "waits for a decision",
        run: () => void navigate({ to: "/approvals/$id", params: { id: a.id } }),
      })),
    [pending, navigate],
  );

  const results = [
    ...best(requests, typed, (c) => `${c.text} ${c.id}`, typed ? 5 : 3),
    ...best(commands, typed, (c) => c.text, 20),
    ...(typed ? best(sandboxes, typed, (c) => `${c.text} ${c.id}`, 20) : sandboxes.slice(0, 8)),
  ];
  const seq = /^#?(\d{1,15})$/.exec(typed.trim())?.[1];
  if (seq) results.push({ id: "seq", icon: "record", text: `Entry ${seq} of the audit log`, run: () => void navigate({ to: "/record/$seq", params: { seq } }) });
  const current = Math.min(selected, results.length - 1);

  const run = (command: Command | undefined) => {
    if (!command) return;
    onOpenChange(false);
    command.run();
  };
  const keys = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0 && results.length > 0) {
      const to = (current + step + results.length) % results.length;
      setSelected(to);
      document.getElementById(`${list}-${to}`)?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter") {
      run(results[current]);
      event.preventDefault();
    }
  };

  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <Radix.Overlay className="p-veil" />
        <Radix.Content className="app-palette" aria-describedby={undefined}>
          <Radix.Title className="unseen">Search and commands</Radix.Title>
          <input
            type="text"
            role="combobox"
            aria-label="Search and commands"
            aria-expanded="true"
            aria-controls={list}
            aria-activedescendant={results.length > 0 ? `${list}-${current}` : undefined}
            autoComplete="off"
            spellCheck={false}
            placeholder="A sandbox, a page, or a command"
            value={typed}
            onChange={(event) => {
              setTyped(event.currentTarget.value);
              setSelected(0);
            }}
            onKeyDown={keys}
          />
          <ul id={list} role="listbox" aria-label="Results">
            {results.map((command, i) => (
              <li
                key={command.id}
                id={`${list}-${i}`}
                role="option"
                aria-selected={i === current}
                onMouseMove={() => setSelected(i)}
                onClick={() => run(command)}
              >
                <Icon name={command.icon} />
                <Inert text={command.text} />
                {command.quiet && <span className="quiet">{command.quiet}</span>}
              </li>
            ))}
          </ul>
          {results.length === 0 && <p className="app-palette-none quiet">No result.</p>}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
