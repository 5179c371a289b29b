import type { Scope } from "../api/console";
import type { IconName } from "../parts/icon";

export interface NavItem {
  to: string;
  label: string;
  icon: IconName;
  /** The scope that the page needs. */
  scope?: Scope;
  /** The second key after g. */
  key?: string;
  /** Whether it is in the navigation bar of small screens. */
  small?: boolean;
}

/** The pages of the console, as the navigation rail shows them. */
export const navItems: readonly NavItem[] = [
  { to: "/", label: "Fleet", icon: "fleet", key: "f", small: true },
  { to: "/approvals", label: "Approvals", icon: "approvals", key: "a", small: true },
  { to: "/record", label: "Audit log", icon: "record", key: "r", small: true },
  { to: "/policy", label: "Policy", icon: "policy", key: "p", small: true },
  { to: "/snapshots", label: "Snapshots", icon: "snapshot" },
  { to: "/templates", label: "Templates", icon: "template" },
  { to: "/packages", label: "Packages", icon: "package" },
  { to: "/secrets", label: "Secrets", icon: "secret", scope: "admin" },
  { to: "/keys", label: "Keys", icon: "key", scope: "admin" },
  { to: "/settings", label: "Settings", icon: "settings" },
  { to: "/doctor", label: "Doctor", icon: "doctor" },
];

/** Reports whether a path is a page's or below it. */
export function within(path: string, page: string): boolean {
  if (page === "/") return path === "/" || path.startsWith("/s/");
  return path === page || path.startsWith(`${page}/`);
}
