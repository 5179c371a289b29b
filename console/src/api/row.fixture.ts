import type { FleetRow } from "./console";

/** A row of the fleet, for tests: a running sandbox that needs no attention. */
export function fleetRow(id: string, more: Partial<FleetRow> = {}): FleetRow {
  return {
    id,
    name: "",
    template: "python",
    state: "running",
    level: "standard",
    engine: "gvisor",
    boundary: "userspace-kernel",
    owner: "key_1",
    labels: {},
    created_at: "2026-01-01T00:00:00Z",
    ends_at: null,
    last_command: null,
    pending: 0,
    denied: 0,
    oom: false,
    attention: 0,
    attention_why: "",
    ...more,
  };
}
