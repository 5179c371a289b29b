import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect } from "react";
import { asProblem } from "../api/problem";
import { useCan } from "../api/session";
import { Button } from "./button";
import { Icon } from "./icon";
import { inertLine } from "./inert";
import { Inert } from "./values";

export interface PageProps {
  title: string;
  /**
   * A heading to use instead of the title, such as a name with its state; title is then only the
   * window's.
   */
  heading?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

/** A page: its one h1, its actions, and the window's title. */
export function Page({ title, heading, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${inertLine(title).text} · Crannog`;
  }, [title]);
  return (
    <div className="p-page">
      <header className="p-page-head">
        <h1>{heading ?? <Inert text={title} />}</h1>
        {actions && <div className="p-page-actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

export interface Tab {
  id: string;
  label: string;
  /** A path below /console, with its search if it has one. */
  to: string;
}

export function TabBar({ tabs, current, label = "Views" }: { tabs: Tab[]; current: string; label?: string }) {
  return (
    <nav className="p-tabs" aria-label={label}>
      {tabs.map((tab) => (
        // Without exact, a tab whose address is a part of the current one would be marked too.
        <Link key={tab.id} to={tab.to} activeOptions={{ exact: true }} aria-current={tab.id === current ? "page" : undefined}>
          {tab.label}
        </Link>
      ))}
    </nav>
  );
}

/** Shown if there is nothing to show. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="p-empty">
      <h2>{title}</h2>
      {children && <div className="quiet">{children}</div>}
    </div>
  );
}

/** An error with the server's text. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = asProblem(error);
  return (
    <div className="p-problem" role="alert">
      <Icon name="alert" />
      <div>
        <p>
          <Inert text={problem.text} />
        </p>
        {problem.hint && (
          <p className="quiet">
            <Inert text={problem.hint} />
          </p>
        )}
        <p className="quiet mono">{problem.code}</p>
      </div>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

/** Shown while something loads; nothing at all if it loads at once. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <p className="p-loading quiet" role="status">
      <span className="p-spinner" aria-hidden="true" /> {what}…
    </p>
  );
}

/** Shows content for a scope only. The server enforces it; this only avoids a refusal. */
export function Can({ scope, children, otherwise }: { scope: "operator" | "admin"; children: ReactNode; otherwise?: ReactNode }) {
  return useCan(scope) ? children : otherwise;
}
