import type { Schemas } from "./client";

/** The types of the console's own paths, which are not in the /v1 API. */

export type Scope = "viewer" | "operator" | "admin";

export interface Session {
  id: string;
  name: string;
  scope: Scope;
  created_at: string;
  expires_at: string;
  version: string;
  server_started: string;
  domain: string;
  engine: { name: string; boundary: string };
}

/** The data of a tile or row of the fleet, except its metrics. */
export interface FleetRow {
  id: string;
  name: string;
  template: string;
  state: string;
  level: string;
  engine: string;
  boundary: string;
  owner: string;
  labels: Record<string, string>;
  created_at: string;
  ends_at?: string | null;
  last_command: { text: string; at: string; exit_code?: number | null } | null;
  pending: number;
  denied: number;
  oom: boolean;
  /** The greater, the more the sandbox needs a person's attention. */
  attention: number;
  attention_why: string;
}

/** One sample of a sandbox's metrics. */
export interface MetricRow {
  id: string;
  /** CPU use, where 1 is one core. */
  cpu: number;
  memory: number;
  memory_limit: number;
  /** Bytes per second. */
  egress: number;
  /** Within the last minute. */
  denied: number;
}

export type Approval = Schemas["Approval"];
export type ApprovalEvent = { type: "pending" | "approved" | "spent" | "denied" | "expired" | "vote"; approval: Approval };

/** One entry of the audit log. */
export interface Entry {
  seq: number;
  time: string;
  prev: string;
  kind: string;
  sandbox?: string;
  /** Who acted: key:ID, local:UID, console:SESSION, box or server. */
  actor?: string;
  /**
   * Fields that depend on the kind. A sandbox may have chosen text in them, so show it with Inert.
   */
  data?: Record<string, unknown>;
  source?: string;
  at?: number;
}

/** One flow of a sandbox. */
export interface FlowRecord {
  time: string;
  sandbox: string;
  seq: number;
  kind: string;
  method?: string;
  host?: string;
  port?: number;
  path?: string;
  address?: string;
  status?: number;
  effect: "allow" | "ask" | "deny";
  rule: string;
  layer?: string;
  policy?: string;
  reason?: string;
  fix?: string;
  sent_bytes?: number;
  received_bytes?: number;
  duration_ms?: number;
  approval?: string;
  secrets?: string[];
  error?: string;
}

/** A note that a slow reader of the stream lost events. */
export interface Gap {
  topic: string;
  text: string;
}

export interface Hello {
  stream: string;
  server_started: string;
  version: string;
  resumed: boolean;
}
