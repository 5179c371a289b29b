import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "../../api/client";
import { Badge, Dialog, Inert, Loading, Problem, toast, Toggle, Verdict } from "../../parts";
import { DialogFooter, useSubmit } from "../actions";
import { useRefresh, useSandbox } from "../queries";
import { Flags } from "./changes";

/** Shows the changes for the host's directory, and applies exactly those. */
export function ApplyDialog({ close }: { close: () => void }) {
  const sandbox = useSandbox();
  const refresh = useRefresh();
  const [flagged, setFlagged] = useState(false);
  const [overwrite, setOverwrite] = useState(false);
  const params = { path: { id: sandbox.id } };
  const body = { protected: flagged, overwrite };
  const draft = useQuery({
    queryKey: ["apply", sandbox.id, flagged, overwrite],
    queryFn: () => unwrap(api.POST("/v1/sandboxes/{id}/apply", { params, body: { ...body, dry_run: true } })),
    retry: false, gcTime: 0,
  });
  const apply = useSubmit(async () => {
    if (!draft.data) return;
    // Exactly the listed changes are applied, or none.
    const done = await unwrap(api.POST("/v1/sandboxes/{id}/apply", { params, body: { ...body, digest: draft.data.digest } }));
    await refresh("changes");
    toast(`${(done.applied ?? []).length} changes were applied.`, { tone: "ok" });
    close();
  });
  const data = draft.data;
  return (
    <Dialog
      open wide onOpenChange={close} title="Apply changes" description={`To ${sandbox.workspace ?? ""} on the host: all of them or none.`}
      footer={<DialogFooter cancel={close} action="Apply" busy={apply.busy} run={apply.run} disabled={!data || (data.applied ?? []).length === 0 || data.effect === "deny"} />}
    >
      <div className="sb-form">
        <Toggle label="Also protected files and files that run by themselves" on={flagged} onChange={setFlagged} />
        <Toggle label="Also files that have changed on the host since" on={overwrite} onChange={setOverwrite} />
        {draft.isPending && <Loading />}
        {draft.error && <Problem error={draft.error} />}
        {data && (
          <>
            {data.effect && (
              <p>
                The policy: <Verdict effect={data.effect} />{" "}
                <span className="mono quiet">
                  <Inert text={data.rule ?? ""} />
                </span>
                {data.effect === "ask" && " An approval was requested. Apply again once it is given."}
              </p>
            )}
            <List title="Applied" changes={data.applied} />
            <List title="Not applied" changes={data.skipped} />
          </>
        )}
        {apply.error !== undefined && <Problem error={apply.error} />}
      </div>
    </Dialog>
  );
}

function List({ title, changes }: { title: string; changes: Schemas["Change"][] | null | undefined }) {
  if (!changes || changes.length === 0) return null;
  return (
    <section>
      <h3>
        {title} <Badge tone="quiet">{changes.length}</Badge>
      </h3>
      <ul className="sb-plain">
        {changes.slice(0, 500).map((one) => (
          <li key={one.path} className="mono">
            {one.op} <Inert text={one.path} /> <Flags flags={one.flags} />
          </li>
        ))}
      </ul>
    </section>
  );
}
