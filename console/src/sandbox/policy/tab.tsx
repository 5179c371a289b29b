import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, unwrap } from "../../api/client";
import { Badge, Code, CopyText, Loading, Problem } from "../../parts";
import { useSandbox } from "../queries";

export function usePolicy() {
  const sandbox = useSandbox();
  return useQuery({
    queryKey: ["policy", sandbox.id, sandbox.network.policy],
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{id}/policy", { params: { path: { id: sandbox.id } } })),
  });
}

const layerLabels: Record<string, string> = { level: "The level", organisation: "The organisation's", project: "The project's", task: "From its creation or a later change" };

/** The policy of a sandbox: what was requested, and the effective result. */
export function PolicyTab() {
  const sandbox = useSandbox();
  const policy = usePolicy();
  if (policy.isPending) return <Loading />;
  if (!policy.data) return <Problem error={policy.error} retry={() => void policy.refetch()} />;
  return (
    <div className="sb-policy">
      <div className="sb-bar">
        <Badge tone="info" icon="policy">
          {policy.data.level}
        </Badge>
        <span className="quiet">Digest</span> <CopyText text={policy.data.digest} label={policy.data.digest.slice(0, 23) + "…"} />
        <span className="sb-fill" />
        <Link className="p-button p-button-plain" to="/policy" search={{ sandbox: sandbox.id }}>
          Edit
        </Link>
      </div>
      <div className="sb-two">
        <section aria-labelledby="sb-effective">
          <h2 id="sb-effective">Effective</h2>
          <p className="quiet">The effective policy, as one document.</p>
          <Code text={policy.data.document} language="yaml" />
        </section>
        <section aria-labelledby="sb-requested">
          <h2 id="sb-requested">Requested policy</h2>
          <p className="quiet">The layers of the policy, the upper ones first. A lower layer can only be stricter.</p>
          {(policy.data.layers ?? []).map((layer, i) => (
            <details key={i} open={layer.kind !== "level"}>
              <summary>
                {layerLabels[layer.kind] ?? layer.kind} <span className="quiet">{layer.kind}</span>
              </summary>
              <Code text={layer.document} language="yaml" />
            </details>
          ))}
        </section>
      </div>
      {(sandbox.effective.checks ?? []).length > 0 && (
        <section aria-labelledby="sb-checks">
          <h2 id="sb-checks">Readiness probes</h2>
          <ul className="sb-plain">
            {(sandbox.effective.checks ?? []).map((one) => (
              <li key={one.check}>
                <Badge tone={one.holds ? "ok" : "bad"} icon={one.holds ? "check" : "deny"}>
                  {one.holds ? "passed" : "failed"}
                </Badge>{" "}
                {one.check}
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}
