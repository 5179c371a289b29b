import { Link } from "@tanstack/react-router";
import type { ReactNode, Ref } from "react";
import { useCan } from "../api/session";
import { Badge, Button, CopyText, Icon, Inert, inertLine, Kbd, Time, useNow, type Tone } from "../parts";
import { leftOf, type Urgency } from "./countdown";
import { factsOf, kindName, lastsOf, partsOf, rememberText, votesOf, type Fact, type ApprovalRequest } from "./request";

const tones: Record<Urgency, Tone> = { calm: "quiet", soon: "warn", now: "bad", over: "quiet" };

/**
 * The remaining time of a request. It is not a live region, because a screen reader that reads a
 * clock aloud would drown all other text.
 */
export function Countdown({ until }: { until: string }) {
  const left = leftOf(until, useNow(1000));
  return (
    <Badge tone={tones[left.urgency]} icon="clock">
      <span className="a-clock">{left.text}</span>
    </Badge>
  );
}

const stateTone: Record<string, Tone> = { pending: "warn", approved: "ok", spent: "ok", denied: "bad", expired: "quiet" };
const stateWord: Record<string, string> = { approved: "approved, not used yet", spent: "approved and used" };

export function RequestState({ state }: { state: string }) {
  return (
    <Badge tone={stateTone[state] ?? "quiet"} icon={state === "denied" ? "deny" : state === "expired" ? "clock" : state === "pending" ? "question" : "check"}>
      {stateWord[state] ?? state}
    </Badge>
  );
}

export interface Deciding {
  approve: () => void;
  /** Allows the host permanently. */
  always: () => void;
  deny: () => void;
  /** Decides all requests of the rule. */
  all: () => void;
  /** The number of pending requests with the same rule, this one included. */
  similar: number;
  busy: boolean;
}

export interface CardProps {
  request: ApprovalRequest;
  /** The sandbox's own name, if it has one. */
  name?: string | undefined;
  /** How similar requests were decided before. */
  past?: string | undefined;
  /** Whether the card has the keyboard focus. */
  focused?: boolean;
  deciding?: Deciding | undefined;
  ref?: Ref<HTMLElement>;
  headRef?: Ref<HTMLElement> | undefined;
  onFocus?: () => void;
  note?: ReactNode;
}

/** One approval request with all facts that a grant is bound to. */
export function Card({ request: q, name, past, focused, deciding, ref, headRef, onFocus, note }: CardProps) {
  const parts = partsOf(q);
  const count = votesOf(q);
  const open = q.state === "pending";
  const facts = factsOf(q);
  const hashes = facts.filter((f) => f.dim);
  const remember = rememberText(q);
  return (
    <article
      ref={ref}
      className="a-card"
      aria-label={`${kindName(q.kind)}: ${inertLine(parts.what).text}`}
      tabIndex={focused === undefined ? undefined : focused ? 0 : -1}
      data-focused={focused || undefined}
      onFocus={onFocus}
    >
      <header ref={headRef} data-request={q.id}>
        <div className="a-line">
          <Badge tone="info">{kindName(q.kind)}</Badge>
          {open ? <Countdown until={q.expires_at} /> : <RequestState state={q.state} />}
          {q.quorum > 1 && <Badge tone={count.given > 0 ? "warn" : "quiet"} icon="user">{count.text}</Badge>}
          <span className="quiet">
            requested <Time at={q.created_at} relative />
          </span>
        </div>
        <h2 className="a-what">
          <Inert text={parts.what} />
        </h2>
        <p className="a-who">
          <Icon name="box" size={14} />{" "}
          <Link to="/s/$id/$tab" params={{ id: q.sandbox, tab: "live" }}>
            <Inert text={name || q.sandbox} />
          </Link>
          {name && <span className="quiet mono"> {q.sandbox}</span>}
          <span className="quiet"> by the rule </span>
          <code>
            <Inert text={q.rule} />
          </code>
        </p>
      </header>
      {parts.agent !== "" && (
        <div className="a-agent">
          <p className="a-agent-mark">
            <Icon name="alert" size={14} /> The agent's own words, unchecked.
          </p>
          <blockquote>
            <Inert text={parts.agent} block />
          </blockquote>
        </div>
      )}
      <section aria-label="Facts">
        <Facts facts={facts.filter((f) => !f.dim)} />
        {hashes.length > 0 && (
          <details className="a-more">
            <summary>
              and {hashes.length} {hashes.length === 1 ? "more fact" : "more facts, such as hashes"}
            </summary>
            <Facts facts={hashes} />
          </details>
        )}
        <ul className="a-scope">
          <li>{lastsOf(q)}</li>
          {open && remember && (
            <li>
              <Inert text={remember} />
            </li>
          )}
          {past && <li>{past}</li>}
          {q.amendment && (
            <li>
              <Inert text={q.amendment} /> was added to the sandbox's policy.
            </li>
          )}
        </ul>
      </section>
      <Votes request={q} />
      {note}
      {deciding && open && <Actions request={q} deciding={deciding} />}
      <details className="a-more">
        <summary>Identity</summary>
        <dl className="a-facts">
          <Row label="request">
            <Link to="/approvals/$id" params={{ id: q.id }}>
              {q.id}
            </Link>
          </Row>
          <Row label="policy">
            <CopyText text={q.policy} />
          </Row>
          <Row label="expires">
            <Time at={q.expires_at} />
          </Row>
          <Row label="audit log">
            <Link to="/record" search={{ kind: "approval", sandbox: q.sandbox, text: q.id }}>
              its entries
            </Link>
          </Row>
        </dl>
      </details>
    </article>
  );
}

function Facts({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl className="a-facts">
      {facts.map((f) => (
        <div key={f.name} className={f.dim ? "a-fact-dim" : undefined}>
          <dt>
            <Inert text={f.name.replaceAll("_", " ")} />
          </dt>
          <dd>
            <Inert text={f.value} block={f.value.includes("\n")} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Row({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Votes({ request: q }: { request: ApprovalRequest }) {
  const votes = q.votes ?? [];
  if (votes.length === 0 && !q.reason) return null;
  return (
    <ul className="a-votes" aria-label="Votes">
      {votes.map((v) => (
        <li key={`${v.who} ${v.at}`}>
          <Icon name={v.granted ? "check" : "deny"} size={14} /> <Inert text={v.who} /> {v.granted ? "approved" : "denied"}{" "}
          <span className="quiet">
            <Time at={v.at} relative />
          </span>
          {v.reason && (
            <>
              : <Inert text={v.reason} />
            </>
          )}
        </li>
      ))}
      {votes.length === 0 && q.reason && (
        <li>
          <Inert text={q.reason} />
        </li>
      )}
    </ul>
  );
}

function Actions({ request: q, deciding: d }: { request: ApprovalRequest; deciding: Deciding }) {
  if (!useCan("operator")) return <p className="quiet">This session is read-only. An operator decides.</p>;
  return (
    <footer className="a-actions">
      <Button variant="primary" icon="check" busy={d.busy} aria-keyshortcuts="a" onClick={d.approve}>
        Approve <Key name="a" />
      </Button>
      {q.always && (
        <Button aria-keyshortcuts="Shift+A" disabled={d.busy} onClick={d.always}>
          Always allow… <Key name="A" />
        </Button>
      )}
      <Button variant="danger" icon="deny" disabled={d.busy} aria-keyshortcuts="d" onClick={d.deny}>
        Deny <Key name="d" />
      </Button>
      {d.similar > 1 && (
        <Button variant="quiet" disabled={d.busy} onClick={d.all}>
          Decide all {d.similar} of this rule…
        </Button>
      )}
    </footer>
  );
}

function Key({ name }: { name: string }) {
  return (
    <span className="a-key" aria-hidden="true">
      <Kbd>{name}</Kbd>
    </span>
  );
}
