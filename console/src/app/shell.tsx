import { Link, Outlet, useLocation, useNavigate } from "@tanstack/react-router";
import { Suspense, lazy, useEffect, useRef, useState } from "react";
import type { Session } from "../api/console";
import { covers } from "../api/session";
import { useApprovals } from "../live";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { Loading } from "../parts/page";
import { Toasts } from "../parts/toast";
import "../parts/index";
import "./app.css";
import { Banner } from "./banner";
import { Head } from "./head";
import { Mark } from "./mark";
import { type NavItem, navItems, within } from "./nav";
import { ApprovalAlerts } from "./alerts";
import { type Shortcuts, useKeyboard, useShortcuts } from "./shortcuts";

const Palette = lazy(() => import("./palette").then((m) => ({ default: m.Palette })));
const Help = lazy(() => import("./help").then((m) => ({ default: m.Help })));

/** The frame around every page. */
export function Shell({ session }: { session: Session }) {
  const navigate = useNavigate();
  const path = useLocation({ select: (l) => l.pathname });
  const pending = useApprovals().pending.length;
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  const shown = navItems.filter((p) => !p.scope || covers(session.scope, p.scope));
  const close = (to: boolean) => !to && setOpen(null);

  useKeyboard();
  const keys: Shortcuts = {
    "mod+k": { label: "Search and commands", run: () => setOpen((was) => (was === "palette" ? null : "palette")) },
    "?": { label: "This help", run: () => setOpen("help") },
  };
  for (const p of shown) {
    if (p.key) keys[`g ${p.key}`] = { label: `Go to ${p.label}`, run: () => void navigate({ to: p.to }) };
  }
  useShortcuts(keys);
  const main = useFocusOnArrival(path);

  return (
    <div className="app">
      <a className="app-skip" href="#main" onClick={(e) => (e.preventDefault(), main.current?.focus())}>
        Skip to the page
      </a>
      <nav className="app-rail" aria-label="Console">
        <Link to="/" className="app-home" aria-label="Crannog, to the fleet">
          <Mark />
          <span>Crannog</span>
        </Link>
        <ul>
          {shown.map((p) => (
            <li key={p.to} className={p.small ? "app-place" : "app-place app-place-wide"}>
              <NavLink item={p} here={within(path, p.to)} count={p.to === "/approvals" ? pending : 0} />
            </li>
          ))}
          <li className="app-place-more">
            <Menu
              label="More pages"
              items={shown.filter((p) => !p.small).map((p) => ({ label: p.label, onSelect: () => void navigate({ to: p.to }) }))}
              trigger={
                <button type="button" className="app-link">
                  <Icon name="more" />
                  <span>More</span>
                </button>
              }
            />
          </li>
        </ul>
      </nav>
      <Head session={session} onSearch={() => setOpen("palette")} onHelp={() => setOpen("help")} />
      <main id="main" ref={main} tabIndex={-1} className="app-main">
        <Banner session={session} />
        <Suspense fallback={<Loading />}>
          <Outlet />
        </Suspense>
      </main>
      <ApprovalAlerts />
      <Toasts />
      <Suspense>
        {open === "palette" && <Palette session={session} open onOpenChange={close} onHelp={() => setOpen("help")} />}
        {open === "help" && <Help open onOpenChange={close} />}
      </Suspense>
    </div>
  );
}

function NavLink({ item, here, count }: { item: NavItem; here: boolean; count: number }) {
  return (
    <Link to={item.to} className="app-link" title={item.label} aria-current={here ? "page" : undefined}>
      <Icon name={item.icon} />
      <span>{item.label}</span>
      {count > 0 && (
        <span className="app-count">
          {count}
          <span className="unseen"> waiting</span>
        </span>
      )}
    </Link>
  );
}

/** Moves the focus into a newly opened page, so that Tab and a screen reader continue there. */
function useFocusOnArrival(path: string) {
  const main = useRef<HTMLElement>(null);
  const last = useRef(path);
  useEffect(() => {
    const [before, now] = [last.current.split("/"), path.split("/")];
    last.current = path;
    // Between tabs of one sandbox the focus stays on the tabs.
    const same = before[1] === now[1] && (now[1] !== "s" || before[2] === now[2]);
    if (!same) main.current?.focus({ preventScroll: true });
  }, [path]);
  return main;
}
