import type { Approval, ApprovalEvent } from "../api/console";

export interface ApprovalView {
  /** Pending requests, the one that expires first at the top. */
  pending: readonly Approval[];
  /** Requests that were decided or expired since this page was opened, newest first. */
  recent: readonly Approval[];
  ready: boolean;
}

const maxRecent = 50;

/** The pending requests, as the server last sent them. */
export class Approvals {
  view: ApprovalView = { pending: [], recent: [], ready: false };
  private readonly byID = new Map<string, Approval>();
  private readonly seen = new Set<string>();

  /** Sets all pending requests. Returns those that are new to the page. */
  list(approvals: readonly Approval[]): Approval[] {
    const wasReady = this.view.ready;
    const newRequests = approvals.filter((a) => !this.seen.has(a.id));
    this.byID.clear();
    this.seen.clear();
    for (const a of approvals) {
      this.byID.set(a.id, a);
      this.seen.add(a.id);
    }
    this.show(this.view.recent, true);
    return wasReady ? newRequests : [];
  }

  /** Processes one change. Returns the request if it is new. */
  event({ approval }: ApprovalEvent): Approval[] {
    const waits = approval.state === "pending";
    const newRequests = waits && !this.seen.has(approval.id);
    if (waits) {
      this.seen.add(approval.id);
      this.byID.set(approval.id, approval);
      this.show(this.view.recent, this.view.ready);
    } else {
      this.seen.delete(approval.id);
      this.byID.delete(approval.id);
      const others = this.view.recent.filter((a) => a.id !== approval.id);
      this.show([approval, ...others].slice(0, maxRecent), this.view.ready);
    }
    return newRequests && this.view.ready ? [approval] : [];
  }

  private show(recent: readonly Approval[], ready: boolean) {
    const pending = [...this.byID.values()].sort(
      (a, b) => Date.parse(a.expires_at) - Date.parse(b.expires_at) || a.id.localeCompare(b.id),
    );
    this.view = { pending, recent, ready };
  }
}
