import { useNavigate, useSearch } from "@tanstack/react-router";
import { kinds } from "./live/timeline";

export const tabs = ["live", "terminal", "files", "processes", "network", "ports", "snapshots", "policy", "secrets", "record"] as const;
export type TabID = (typeof tabs)[number];

/** The filters of a sandbox's page in the URL. */
export interface SandboxSearch {
  /** Kinds of the timeline, separated by commas. */
  show?: string;
  programs?: boolean;
  /** The terminal that is shown, or the recording of a command. */
  terminal?: number;
  replay?: number;
  path?: string;
  view?: "changes";
  /** The snapshot that changes are compared with; the start if absent. */
  since?: string;
  dir?: string;
  verdict?: "allowed" | "denied" | "asked";
  host?: string;
  order?: "cpu" | "memory" | "pid";
  port?: number;
  kind?: string;
}

/** Parses the search of the page's URL; unknown fields are ignored. */
export function sandboxSearch(given: Record<string, unknown>): SandboxSearch {
  const search = { ...given };
  const out: SandboxSearch = {};
  const textOf = (name: string) => (typeof search[name] === "string" && search[name] !== "" ? search[name].slice(0, 4096) : typeof search[name] === "number" ? String(search[name]) : undefined);
  const number = (name: string) => (Number.isSafeInteger(search[name]) && (search[name] as number) > 0 ? (search[name] as number) : undefined);
  const show = textOf("show")?.split(",").filter((kind) => (kinds as readonly string[]).includes(kind)).join(",");
  const verdict = textOf("verdict");
  const order = textOf("order");
  put(out, "show", show || undefined);
  put(out, "programs", search["programs"] === true ? true : undefined);
  put(out, "terminal", number("terminal"));
  put(out, "replay", number("replay"));
  put(out, "path", textOf("path"));
  put(out, "view", search["view"] === "changes" ? "changes" : undefined);
  put(out, "since", textOf("since"));
  put(out, "dir", textOf("dir"));
  put(out, "verdict", verdict === "allowed" || verdict === "denied" || verdict === "asked" ? verdict : undefined);
  put(out, "host", textOf("host"));
  put(out, "order", order === "cpu" || order === "memory" || order === "pid" ? order : undefined);
  put(out, "port", number("port"));
  put(out, "kind", textOf("kind"));
  return out;
}

function put<K extends keyof SandboxSearch>(to: SandboxSearch, name: K, value: SandboxSearch[K] | undefined) {
  if (value !== undefined) to[name] = value;
}

export type Change = { [K in keyof SandboxSearch]?: SandboxSearch[K] | undefined };

/** Returns the filters in the URL, and a function that changes some of them. */
export function useFilters(): [SandboxSearch, (change: Change, push?: boolean) => void] {
  const search = useSearch({ strict: false }) as SandboxSearch;
  const navigate = useNavigate();
  const set = (change: Change, push = false) => {
    const next = Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, value]) => value !== undefined && value !== ""));
    void navigate({ to: ".", search: next, replace: !push });
  };
  return [search, set];
}
