/** The inbox: pending and decided approval requests. */
import { useNavigate, useParams } from "@tanstack/react-router";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { useCan } from "../api/session";
import { useShortcuts } from "../app/shortcuts";
import { useApprovals, useLiveState } from "../live";
import { Button, Empty, Kbd, Loading, Page, Problem, toast } from "../parts";
import { asProblem } from "../api/problem";
import "./approvals.css";
import { Card } from "./card";
import { send, useDecided, usePending, useQuestion, type Decision } from "./decide";
import { AlwaysDialog, BulkDialog, DenyDialog } from "./dialogs";
import { Decided } from "./history";
import { byDeadline, clickCounts, emptyInbox, focusOn, keyCounts, move, settle, shown } from "./inbox";
import { useNames } from "./names";
import { Notify } from "./notify";
import { kindName, partsOf, pastOf, sameRule, type Question } from "./question";
import { useInView, useShown } from "./view";

type Open = { what: "deny" | "always"; question: Question } | { what: "bulk"; questions: readonly Question[] };

export function ApprovalsPage() {
  const { id } = useParams({ strict: false }) as { id?: string };
  const { pending, recent, ready } = useApprovals();
  const told = useLiveState() === "live" && ready;
  const asked = usePending(!told);
  // A list that was requested in an earlier break is older than the events of the stream since
  // then.
  const toldAt = useRef(0);
  if (told) toldAt.current = Date.now();
  const newer = asked.dataUpdatedAt >= toldAt.current ? asked.data : undefined;
  const open = told ? pending : (newer ?? pending);
  const [answered, setAnswered] = useState<ReadonlySet<string>>(new Set());
  const waiting = useMemo(() => byDeadline<Question>(open.filter((q) => !answered.has(q.id))), [open, answered]);
  const names = useNames(waiting);
  const known = ready || asked.data !== undefined;
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

/** The request of a deep link, if it is not pending any more. */
function Linked({ id, waiting, ready, stamp }: { id: string | undefined; waiting: readonly Question[]; ready: boolean; stamp: string }) {
  const open = id !== undefined && waiting.some((q) => q.id === id);
  const one = useQuestion(ready && !open ? id : undefined, stamp);
  const navigate = useNavigate();
  const may = useCan("operator");
  const [taking, setTaking] = useState(false);
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
        question={one.data}
        note={
          <p className="a-actions">
            {may && one.data.state === "approved" && (
              <Button variant="danger" icon="deny" onClick={() => setTaking(true)}>
                Take back…
              </Button>
            )}
            {close}
          </p>
        }
      />
      {taking && (
        <DenyDialog
          question={one.data}
          onClose={() => setTaking(false)}
          onDeny={async (reason) => {
            await send(id, { do: "deny", reason });
            toast("The grant is taken back.");
            await one.refetch();
          }}
        />
      )}
    </section>
  );
}

interface WaitingProps {
  waiting: readonly Question[];
  ready: boolean;
  /** Changes with each decision. */
  stamp: string;
  names: ReadonlyMap<string, string>;
  first: string | undefined;
  onAnswered: (id: string) => void;
}

function Waiting({ waiting, ready, stamp, names, first, onAnswered }: WaitingProps) {
  const may = useCan("operator");
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
    setInbox((before) => settle(before, order === "" ? [] : order.split(" "), Date.now()));
  }, [order]);
  useEffect(() => {
    if (first !== undefined) setInbox((before) => focusOn(before, first, Date.now()));
  }, [first, order]);
  useShown(() => setInbox((before) => shown(before, Date.now())));
  useFocus(inbox.focus, cards.current, list);

  const decide = useCallback(
    async (question: Question, d: Decision) => {
      setBusy((before) => new Set(before).add(question.id));
      try {
        const now = await send(question.id, d);
        if (now.state !== "pending") onAnswered(question.id);
        toast(wordsFor(d, now), { tone: d.do === "deny" ? "info" : "ok" });
      } finally {
        setBusy((before) => {
          const rest = new Set(before);
          rest.delete(question.id);
          return rest;
        });
      }
    },
    [onAnswered],
  );

  const begin = (q: Question, action: "approve" | "always" | "deny") => {
    setHint("");
    if (action === "approve") decide(q, { do: "approve", remember: false }).catch((e: unknown) => toast(asProblem(e).text, { tone: "bad" }));
    else if (action === "deny") setOpen({ what: "deny", question: q });
    else if (q.always) setOpen({ what: "always", question: q });
    else setHint("This request cannot be remembered. a approves it once.");
  };

  const press = (event: KeyboardEvent, action: "approve" | "always" | "deny") => {
    const q = waiting.find((each) => each.id === inbox.focus);
    // A key that is held down decides nothing: it would act on the next card too.
    if (!q || busy.has(q.id) || event.repeat) return;
    if (!may) setHint("This session can look only: an operator decides.");
    else if (!keyCounts(inbox, inView.since(q.id), Date.now())) {
      cards.current.get(q.id)?.scrollIntoView({ block: "nearest" });
      setHint("Nothing was decided: this card has only just come up. Read it, then press again.");
    } else begin(q, action);
  };
  useShortcuts({
    j: { label: "Next request", run: () => setInbox((before) => move(before, 1, Date.now())) },
    k: { label: "Question before", run: () => setInbox((before) => move(before, -1, Date.now())) },
    a: { label: "Approve once", run: (e) => press(e, "approve") },
    A: { label: "Always allow the host", run: (e) => press(e, "always") },
    d: { label: "Deny with a reason", run: (e) => press(e, "deny") },
  });

  const click = (q: Question, action: "approve" | "always" | "deny") => {
    if (clickCounts(inbox, q.id, Date.now())) begin(q, action);
    else setHint("Nothing was decided: the cards had only just moved. Read this one, then press again.");
  };

  if (!ready) return <Loading what="Waiting for the approval requests" />;
  return (
    <section ref={list} className="a-list" aria-labelledby="a-waiting" tabIndex={-1}>
      <div className="a-head">
        <h2 id="a-waiting">
          Waiting <span className="quiet">{waiting.length}</span>
        </h2>
        {waiting.length > 0 && may && (
          <p className="a-keys quiet">
            <Kbd>j</Kbd> <Kbd>k</Kbd> move · <Kbd>a</Kbd> approve once · <Kbd>A</Kbd> always allow · <Kbd>d</Kbd> deny
          </p>
        )}
      </div>
      <p className="a-hint" role="status">
        {hint}
      </p>
      {waiting.length === 0 && (
        <Empty title="No request waits for a decision">When a sandbox's policy leaves a decision to people, the approval request appears here, and the sandbox waits.</Empty>
      )}
      <ul className="a-cards">
        {waiting.map((q) => (
          <li key={q.id}>
            <Card
              question={q}
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
                all: () => setOpen({ what: "bulk", questions: sameRule(waiting, q) }),
                alike: sameRule(waiting, q).length,
                busy: busy.has(q.id),
              }}
            />
          </li>
        ))}
      </ul>
      {open?.what === "deny" && <DenyDialog question={open.question} onClose={() => setOpen(null)} onDeny={(reason) => decide(open.question, { do: "deny", reason })} />}
      {open?.what === "always" && (
        <AlwaysDialog question={open.question} onClose={() => setOpen(null)} onConfirm={() => decide(open.question, { do: "approve", remember: true })} />
      )}
      {open?.what === "bulk" && <BulkDialog questions={open.questions} names={names} onClose={() => setOpen(null)} onDecided={onAnswered} />}
    </section>
  );
}

function wordsFor(d: Decision, q: Question): string {
  const what = `${kindName(q.kind)}: ${partsOf(q).what}`;
  if (d.do === "deny") return `Denied. ${what}`;
  if (q.state === "pending") return `Your approval counts. Another person must approve too. ${what}`;
  return d.remember ? `Always allowed. ${what}` : `Approved once. ${what}`;
}

/** useFocus keeps the browser's focus on the card with the keyboard focus, unless a person is in another field. */
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

