import { useNavigate, useParams } from "@tanstack/react-router";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { useCan } from "../api/session";
import { useShortcuts } from "../app/shortcuts";
import { useApprovals, useLiveState } from "../live";
import { Button, Empty, Kbd, Loading, Page, Problem, toast } from "../parts";
import { asProblem } from "../api/problem";
import "./approvals.css";
import { Card } from "./card";
import { send, useDecided, usePending, useRequest, type Decision } from "./decide";
import { AlwaysDialog, BulkDialog, DenyDialog } from "./dialogs";
import { Decided } from "./history";
import { byDeadline, clickCounts, emptyInbox, focusOn, keyCounts, move, reorder, shown } from "./inbox";
import { useNames } from "./names";
import { Notify } from "./notify";
import { kindName, partsOf, pastOf, sameRule, type ApprovalRequest } from "./request";
import { useInView, useOnVisible } from "./view";

type Open = { what: "deny" | "always"; request: ApprovalRequest } | { what: "bulk"; requests: readonly ApprovalRequest[] };

/** The inbox: pending and decided approval requests. */
export function ApprovalsPage() {
  const { id } = useParams({ strict: false }) as { id?: string };
  const { pending, recent, ready } = useApprovals();
  const streaming = useLiveState() === "live" && ready;
  const polled = usePending(!streaming);
  // A list that was polled in an earlier interruption is older than the stream's events since then.
  const streamedAt = useRef(0);
  if (streaming) streamedAt.current = Date.now();
  const newer = polled.dataUpdatedAt >= streamedAt.current ? polled.data : undefined;
  const open = streaming ? pending : (newer ?? pending);
  const [answered, setAnswered] = useState<ReadonlySet<string>>(new Set());
  const waiting = useMemo(() => byDeadline<ApprovalRequest>(open.filter((q) => !answered.has(q.id))), [open, answered]);
  const names = useNames(waiting);
  const known = ready || polled.data !== undefined;
  const stamp = recent[0] ? `${recent[0].id} ${recent[0].state} ${recent.length}` : "";
  return (
    <Page title="Approvals" actions={<Notify />}>
      <Linked id={id} waiting={waiting} ready={known} stamp={stamp} />
      <Waiting
        waiting={waiting}
        ready={known}
        stamp={stamp}
        names={names}
        first={id}
        onAnswered={(done) => setAnswered((before) => new Set(before).add(done))}
      />
      <Decided stamp={stamp} />
    </Page>
  );
}

/** The request that the address names, if it is not pending any more. */
function Linked({ id, waiting, ready, stamp }: { id: string | undefined; waiting: readonly ApprovalRequest[]; ready: boolean; stamp: string }) {
  const open = id !== undefined && waiting.some((q) => q.id === id);
  const one = useRequest(ready && !open ? id : undefined, stamp);
  const navigate = useNavigate();
  const isOperator = useCan("operator");
  const [revoking, setRevoking] = useState(false);
  if (id === undefined || open || !ready) return null;
  const close = (
    <Button variant="quiet" onClick={() => void navigate({ to: "/approvals" })}>
      Show all
    </Button>
  );
  if (one.error) {
    return (
      <section className="a-list" aria-label="This approval request">
        <Problem error={one.error} />
        {close}
      </section>
    );
  }
  if (!one.data) return <Loading />;
  return (
    <section className="a-list" aria-label="This approval request">
      <Card
        request={one.data}
        note={
          <p className="a-actions">
            {isOperator && one.data.state === "approved" && (
              <Button variant="danger" icon="deny" onClick={() => setRevoking(true)}>
                Revoke…
              </Button>
            )}
            {close}
          </p>
        }
      />
      {revoking && (
        <DenyDialog
          request={one.data}
          onClose={() => setRevoking(false)}
          onDeny={async (reason) => {
            await send(id, { do: "deny", reason });
            toast("The grant is revoked.");
            await one.refetch();
          }}
        />
      )}
    </section>
  );
}

interface WaitingProps {
  waiting: readonly ApprovalRequest[];
  ready: boolean;
  /** Changes with each decision. */
  stamp: string;
  names: ReadonlyMap<string, string>;
  first: string | undefined;
  onAnswered: (id: string) => void;
}

function Waiting({ waiting, ready, stamp, names, first, onAnswered }: WaitingProps) {
  const isOperator = useCan("operator");
  const decided = useDecided(stamp).data ?? [];
  const inView = useInView();
  const [inbox, setInbox] = useState(() => emptyInbox(Date.now()));
  const [open, setOpen] = useState<Open | null>(null);
  const [busy, setBusy] = useState<ReadonlySet<string>>(new Set());
  const [hint, setHint] = useState("");
  const cards = useRef(new Map<string, HTMLElement>());
  const list = useRef<HTMLElement>(null);
  const order = waiting.map((q) => q.id).join(" ");

  useLayoutEffect(() => {
    setInbox((before) => reorder(before, order === "" ? [] : order.split(" "), Date.now()));
  }, [order]);
  useEffect(() => {
    if (first !== undefined) setInbox((before) => focusOn(before, first, Date.now()));
  }, [first, order]);
  useOnVisible(() => setInbox((before) => shown(before, Date.now())));
  useFocus(inbox.focus, cards.current, list);

  const decide = useCallback(
    async (request: ApprovalRequest, d: Decision) => {
      setBusy((before) => new Set(before).add(request.id));
      try {
        const now = await send(request.id, d);
        if (now.state !== "pending") onAnswered(request.id);
        toast(wordsFor(d, now), { tone: d.do === "deny" ? "info" : "ok" });
      } finally {
        setBusy((before) => {
          const rest = new Set(before);
          rest.delete(request.id);
          return rest;
        });
      }
    },
    [onAnswered],
  );

  const begin = (q: ApprovalRequest, action: "approve" | "always" | "deny") => {
    setHint("");
    if (action === "approve") decide(q, { do: "approve", remember: false }).catch((e: unknown) => toast(asProblem(e).text, { tone: "bad" }));
    else if (action === "deny") setOpen({ what: "deny", request: q });
    else if (q.always) setOpen({ what: "always", request: q });
    else setHint("This request cannot be remembered. The key a approves it once.");
  };

  const press = (event: KeyboardEvent, action: "approve" | "always" | "deny") => {
    const q = waiting.find((each) => each.id === inbox.focus);
    // A held key decides nothing, because it would act on the next card too.
    if (!q || busy.has(q.id) || event.repeat) return;
    if (!isOperator) setHint("This session is read-only. An operator decides.");
    else if (!keyCounts(inbox, inView.since(q.id), Date.now())) {
      cards.current.get(q.id)?.scrollIntoView({ block: "nearest" });
      setHint("Nothing was decided, because this card has just appeared. Read it, then press the key again.");
    } else begin(q, action);
  };
  useShortcuts({
    j: { label: "Next request", run: () => setInbox((before) => move(before, 1, Date.now())) },
    k: { label: "Previous request", run: () => setInbox((before) => move(before, -1, Date.now())) },
    a: { label: "Approve once", run: (e) => press(e, "approve") },
    A: { label: "Always allow the host", run: (e) => press(e, "always") },
    d: { label: "Deny with a reason", run: (e) => press(e, "deny") },
  });

  const click = (q: ApprovalRequest, action: "approve" | "always" | "deny") => {
    if (clickCounts(inbox, q.id, Date.now())) begin(q, action);
    else setHint("Nothing was decided, because the cards have just moved. Read this one, then press again.");
  };

  if (!ready) return <Loading what="Waiting for the approval requests" />;
  return (
    <section ref={list} className="a-list" aria-labelledby="a-waiting" tabIndex={-1}>
      <div className="a-head">
        <h2 id="a-waiting">
          Waiting <span className="quiet">{waiting.length}</span>
        </h2>
        {waiting.length > 0 && isOperator && (
          <p className="a-keys quiet">
            <Kbd>j</Kbd> <Kbd>k</Kbd> move · <Kbd>a</Kbd> approve once · <Kbd>A</Kbd> always allow · <Kbd>d</Kbd> deny
          </p>
        )}
      </div>
      <p className="a-hint" role="status">
        {hint}
      </p>
      {waiting.length === 0 && (
        <Empty title="No request waits for a decision">When a sandbox's policy requires an approval, the approval request appears here, and the sandbox waits.</Empty>
      )}
      <ul className="a-cards">
        {waiting.map((q) => (
          <li key={q.id}>
            <Card
              request={q}
              name={names.get(q.sandbox)}
              past={pastOf(decided, q)}
              focused={q.id === inbox.focus}
              headRef={inView.watch(q.id)}
              ref={(element) => {
                if (element) cards.current.set(q.id, element);
                else cards.current.delete(q.id);
              }}
              onFocus={() => setInbox((before) => focusOn(before, q.id, Date.now()))}
              deciding={{
                approve: () => click(q, "approve"),
                always: () => click(q, "always"),
                deny: () => click(q, "deny"),
                all: () => setOpen({ what: "bulk", requests: sameRule(waiting, q) }),
                similar: sameRule(waiting, q).length,
                busy: busy.has(q.id),
              }}
            />
          </li>
        ))}
      </ul>
      {open?.what === "deny" && <DenyDialog request={open.request} onClose={() => setOpen(null)} onDeny={(reason) => decide(open.request, { do: "deny", reason })} />}
      {open?.what === "always" && (
        <AlwaysDialog request={open.request} onClose={() => setOpen(null)} onConfirm={() => decide(open.request, { do: "approve", remember: true })} />
      )}
      {open?.what === "bulk" && <BulkDialog requests={open.requests} names={names} onClose={() => setOpen(null)} onDecided={onAnswered} />}
    </section>
  );
}

function wordsFor(d: Decision, q: ApprovalRequest): string {
  const what = `${kindName(q.kind)}: ${partsOf(q).what}`;
  if (d.do === "deny") return `Denied. ${what}`;
  if (q.state === "pending") return `Your approval is recorded. Another person must approve too. ${what}`;
  return d.remember ? `Always allowed. ${what}` : `Approved once. ${what}`;
}

/**
 * useFocus keeps the browser's focus on the card that keys act on, unless a person is in another
 * field.
 */
function useFocus(focus: string | null, cards: ReadonlyMap<string, HTMLElement>, list: { current: HTMLElement | null }): void {
  const last = useRef<string | null>(null);
  useEffect(() => {
    const before = last.current;
    last.current = focus;
    const active = document.activeElement;
    const elsewhere = active !== null && !active.contains(list.current) && !list.current?.contains(active);
    if (elsewhere || before === focus) return;
    const card = focus === null ? null : cards.get(focus);
    if (card) {
      if (!card.contains(active)) card.focus({ preventScroll: true });
      card.scrollIntoView({ block: "nearest" });
    } else if (before !== null) list.current?.focus();
  }, [focus, cards, list]);
}

