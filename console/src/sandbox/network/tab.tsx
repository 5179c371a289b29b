import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { FlowRecord } from "../../api/console";
import { Badge, Button, Empty, format, Inert, inertLine, Loading, Menu, Problem, Select, Verdict } from "../../parts";
import { useTyped } from "../../parts/typed";
import { useCan } from "../../api/session";
import { useTraffic } from "../live/history";
import { Clock } from "../live/tab";
import { endpoint } from "../live/timeline";
import { Lines } from "../lines";
import { isLive, useSandbox } from "../queries";
import { type SandboxSearch, useFilters } from "../search";
import type { RuleRequest } from "./access";
import { RuleDialog } from "./rule";

const effects: Record<NonNullable<SandboxSearch["verdict"]>, FlowRecord["effect"]> = { allowed: "allow", denied: "deny", asked: "ask" };

/** The flows of a sandbox, each with its decision. */
export function NetworkTab() {
  const sandbox = useSandbox();
  const traffic = useTraffic(sandbox.id);
  const [filters, set] = useFilters();
  const [host, typeHost] = useTyped(filters.host ?? "", (text) => set({ host: text || undefined }));
  const [ruleRequest, setRuleRequest] = useState<RuleRequest>();
  const rows = useMemo(() => {
    const effect = filters.verdict ? effects[filters.verdict] : undefined;
    const host = filters.host?.toLowerCase();
    return traffic.flows.filter((one) => (!effect || one.effect === effect) && (!host || (one.host ?? one.address ?? "").toLowerCase().includes(host)));
  }, [traffic.flows, filters.verdict, filters.host]);
  const count = (effect: string) => traffic.flows.filter((one) => one.effect === effect).length;
  const isFiltered = filters.verdict !== undefined || filters.host !== undefined;
  return (
    <section className="sb-column" aria-label="Network">
      <div className="sb-bar">
        <Select
          label="Verdict" value={filters.verdict ?? ""} onChange={(value) => set({ verdict: (value || undefined) as SandboxSearch["verdict"] })}
          options={[
            { value: "", label: "all verdicts" },
            { value: "allowed", label: `allowed (${count("allow")})` },
            { value: "denied", label: `denied (${count("deny")})` },
            { value: "asked", label: `asked (${count("ask")})` },
          ]}
        />
        <input type="search" data-filter aria-label="Filter by host" placeholder="Host" value={host} onChange={(event) => typeHost(event.currentTarget.value)} />
        <span className="sb-fill" />
        <Button icon={traffic.paused ? "play" : "pause"} aria-pressed={traffic.paused} onClick={() => traffic.setPaused(!traffic.paused)}>
          {traffic.paused ? `Continue${traffic.held > 0 ? ` (${traffic.held} new)` : ""}` : "Pause live"}
        </Button>
      </div>
      {!sandbox.network.attached && (
        <p className="sb-note">
          It was created without a network.
          {traffic.asked.length > 0 && (
            <>
              {" "}
              Its programs requested: <Inert text={traffic.asked.slice(0, 50).join(", ")} />
            </>
          )}
        </p>
      )}
      {traffic.gap !== null && <p className="sb-note">There were too many requests to follow. They were read again.</p>}
      {traffic.error ? (
        <Problem error={traffic.error} retry={traffic.retry} />
      ) : traffic.loading ? (
        <Loading />
      ) : (
        <Lines
          as="table" label="Requests" items={rows} keyOf={(one) => String(one.seq)} height={33} follow
          nameOf={(one) => inertLine(`${one.effect} ${endpoint(one)}`).text}
          head={<Head />}
          empty={<Empty title={isFiltered ? "No request matches" : "No request yet"}>{isFiltered ? "No request has this decision and this host." : "The requests of its programs appear here, each with its decision."}</Empty>}
        >
          {(one) => <Row flow={one} ruleRequest={setRuleRequest} filter={set} />}
        </Lines>
      )}
      {ruleRequest && <RuleDialog ruleRequest={ruleRequest} close={() => setRuleRequest(undefined)} />}
    </section>
  );
}

function Head() {
  return (
    <div className="sb-head sb-flow" role="row">
      {["Time", "Verdict", "Request", "Rule", "Size", ""].map((name) => (
        <span key={name} role="columnheader">
          {name || <span className="sb-hidden">Actions</span>}
        </span>
      ))}
    </div>
  );
}

function Row({ flow, ruleRequest, filter }: { flow: FlowRecord; ruleRequest: (ruleRequest: RuleRequest) => void; filter: (change: { host: string }) => void }) {
  const sandbox = useSandbox();
  const can = useCan("operator") && isLive(sandbox) && sandbox.network.attached;
  const [open, setOpen] = useState(false);
  const host = flow.host ?? "";
  const port = flow.port || 443;
  const hasHostName = /[a-z]/i.test(host) && !["packet", "link"].includes(flow.kind);
  const items = [
    ...(can && hasHostName && flow.effect !== "allow" && flow.layer !== "floor" ? [{ label: "Allow host", onSelect: () => ruleRequest({ effect: "allow" as const, host, port }) }] : []),
    ...(can && hasHostName ? [{ label: "Deny host", danger: true, onSelect: () => ruleRequest({ effect: "deny" as const, host, port }) }] : []),
    ...(host ? [{ label: "Only this host", onSelect: () => filter({ host }) }] : []),
  ];
  return (
    <>
      <div className={`sb-flow sb-flow-${flow.effect}`}>
        <span role="cell">
          <Clock time={flow.time} />
        </span>
        <span role="cell">
          <Verdict effect={flow.effect} />
        </span>
        <span role="cell" className="sb-title">
          <button type="button" className="sb-open" aria-expanded={open} onClick={() => setOpen(!open)}>
            <span className="quiet">{flow.kind}</span> <span className="mono"><Inert text={endpoint(flow) || (flow.reason ?? "")} /></span>
          </button>
          {flow.status ? <Badge tone={flow.status >= 400 ? "warn" : "quiet"}>{flow.status}</Badge> : null}
          {flow.error && <Badge tone="warn">failed</Badge>}
          {flow.secrets && flow.secrets.length > 0 && <Badge tone="info" icon="secret" title="Secrets that were set on it">{inertLine(flow.secrets.join(", ")).text}</Badge>}
        </span>
        <span role="cell" className="sb-rule">
          <span className="mono">
            <Inert text={flow.rule} />
          </span>{" "}
          {flow.layer && <span className="quiet">{flow.layer}</span>}
        </span>
        <span role="cell" className="quiet sb-size">
          {flow.sent_bytes || flow.received_bytes ? `${format.bytes(flow.sent_bytes ?? 0)} ↑ ${format.bytes(flow.received_bytes ?? 0)} ↓` : ""}
        </span>
        <span role="cell">{items.length > 0 && <Menu label={`Actions for ${inertLine(host || flow.kind).text}`} items={items} />}</span>
      </div>
      {(open || flow.effect !== "allow") && <Why flow={flow} all={open} />}
    </>
  );
}

/** The reason for a decision, and what would allow the request. */
function Why({ flow, all }: { flow: FlowRecord; all: boolean }) {
  const facts: [string, string | undefined][] = all
    ? [
        ["Address", flow.address], ["Took", flow.duration_ms ? format.duration(flow.duration_ms) : undefined], ["Policy", flow.policy], ["Failed", flow.error],
      ]
    : [];
  if (!flow.reason && !flow.fix && !flow.approval && facts.every(([, value]) => !value)) return null;
  return (
    <div className="sb-why" role="cell">
      {flow.reason && <Inert text={flow.reason} />}
      {flow.fix && (
        <span>
          <span className="quiet">What would allow it:</span>{" "}
          <code>
            <Inert text={flow.fix} />
          </code>
        </span>
      )}
      {flow.approval && (
        <Link to="/approvals/$id" params={{ id: flow.approval }}>
          Approval {flow.approval}
        </Link>
      )}
      {facts.map(([name, value]) =>
        value ? (
          <span key={name}>
            <span className="quiet">{name}</span>{" "}
            <span className="mono">
              <Inert text={value} />
            </span>
          </span>
        ) : null,
      )}
    </div>
  );
}
