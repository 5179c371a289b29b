import type { FleetRow } from "../api/console";

export interface FleetEvent {
  full: boolean;
  sandboxes: FleetRow[] | null;
  removed?: string[] | null;
}

export interface FleetView {
  rows: readonly FleetRow[];
  /** Whether all rows were received once. */
  ready: boolean;
}

/**
 * The fleet, as the server last sent it. An unchanged row stays the same object, so that React does
 * not draw it again.
 */
export class Fleet {
  view: FleetView = { rows: [], ready: false };
  private byID = new Map<string, FleetRow>();

  /** Processes one event; reports whether anything changed. */
  apply(event: FleetEvent): boolean {
    const rows = event.sandboxes ?? [];
    let changed = event.full && !this.view.ready;
    if (event.full) {
      const next = new Map<string, FleetRow>();
      for (const row of rows) next.set(row.id, this.existingOrNew(row));
      changed ||= next.size !== this.byID.size || [...next].some(([id, row]) => this.byID.get(id) !== row);
      this.byID = next;
    } else {
      for (const row of rows) {
        const stored = this.existingOrNew(row);
        if (stored === this.byID.get(row.id)) continue;
        this.byID.set(row.id, stored);
        changed = true;
      }
      for (const id of event.removed ?? []) changed = this.byID.delete(id) || changed;
    }
    if (changed) this.view = { rows: [...this.byID.values()], ready: this.view.ready || event.full };
    return changed;
  }

  get(id: string): FleetRow | undefined {
    return this.byID.get(id);
  }

  private existingOrNew(row: FleetRow): FleetRow {
    const known = this.byID.get(row.id);
    return known && JSON.stringify(known) === JSON.stringify(row) ? known : row;
  }
}
