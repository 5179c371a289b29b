import { Link } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, unwrap } from "../../api/client";
import { Dialog, Inert, inertLine, Loading, Problem, toast } from "../../parts";
import { DialogFooter, useSubmit } from "../actions";
import { useRefresh, useSandbox } from "../queries";
import { type Access, accessLines, accessOf, CannotEdit, diffLines, withRule, type RuleRequest } from "./access";

interface Draft {
  before: Access;
  after: Access;
}

/** Shows how a rule for a row's host would change the access of the sandbox, and sets it. */
export function RuleDialog({ ruleRequest, close }: { ruleRequest: RuleRequest; close: () => void }) {
  const sandbox = useSandbox();
  const refresh = useRefresh();
  const policy = useQuery({
    queryKey: ["policy", sandbox.id, "now"],
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{id}/policy", { params: { path: { id: sandbox.id } } })),
    gcTime: 0,
  });
  const draft = useMemo((): Draft | CannotEdit | undefined => {
    if (!policy.data) return undefined;
    try {
      const before = accessOf(sandbox.network.net, policy.data.layers ?? []);
      return { before, after: withRule(before, ruleRequest) };
    } catch (thrown) {
      return thrown instanceof CannotEdit ? thrown : new CannotEdit("Its policy cannot be changed here.");
    }
  }, [policy.data, sandbox.network.net, ruleRequest]);
  const set = useSubmit(async () => {
    if (!draft || draft instanceof CannotEdit || !policy.data) return;
    const params = { path: { id: sandbox.id } };
    // The replaced access must be the one that was shown: another person may have changed it.
    const now = await unwrap(api.GET("/v1/sandboxes/{id}/policy", { params }));
    if (now.digest !== policy.data.digest) throw new Error("The policy has changed since it was shown. Close this dialog and open it again.");
    await unwrap(api.PUT("/v1/sandboxes/{id}/access", { params, body: draft.after }));
    await refresh("policy", "flows");
    toast("The policy was changed.", { tone: "ok" });
    close();
  });
  const host = inertLine(`${ruleRequest.host}:${ruleRequest.port}`).text;
  const action = ruleRequest.effect === "allow" ? "Allow host" : "Deny host";
  return (
    <Dialog
      open wide onOpenChange={close} title={`${action} ${host}?`}
      description={ruleRequest.effect === "allow" ? "Every program in this sandbox may then reach it, with any method and path, until its policy is changed again." : "No program in this sandbox may then reach it. Its open connections are closed."}
      footer={<DialogFooter cancel={close} action={action} danger={ruleRequest.effect === "deny"} busy={set.busy} run={set.run} disabled={!draft || draft instanceof CannotEdit} />}
    >
      {policy.isPending && <Loading />}
      {policy.error && <Problem error={policy.error} />}
      {draft instanceof CannotEdit && (
        <p>
          {draft.message} <Link to="/policy" search={{ sandbox: sandbox.id }}>Open the policy editor</Link>
        </p>
      )}
      {draft && !(draft instanceof CannotEdit) && <DraftText draft={draft} />}
      {set.error !== undefined && <Problem error={set.error} />}
    </Dialog>
  );
}

function DraftText({ draft }: { draft: Draft }) {
  const lines = diffLines(accessLines(draft.before), accessLines(draft.after));
  return (
    <div className="sb-diff-frame" role="region" aria-label="Draft" tabIndex={0}>
      <table className="sb-diff">
        <tbody>
          {lines.map((line, i) => (
            <tr key={i} className={`sb-diff-${line.kind}`}>
              <td className="sb-sign">
                <span aria-hidden="true">{line.kind === "added" ? "+" : line.kind === "removed" ? "−" : " "}</span>
                <span className="sb-hidden">{line.kind === "same" ? "" : `${line.kind}: `}</span>
              </td>
              <td className="sb-code">
                <Inert text={line.text} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
