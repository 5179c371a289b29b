import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Ask } from "../admin/ask";
import "../admin/admin.css";
import { api, unwrap, type Schemas } from "../api/client";
import { Button, Bytes, CopyText, Field, format, Problem } from "../parts";
import { cacheKey, parseSize } from "./cache";

/** Removes and verifies, with the results of the last time. */
export function Actions({ used, empty }: { used: number; empty: boolean }) {
  const queries = useQueryClient();
  const refresh = () => queries.invalidateQueries({ queryKey: cacheKey });
  const [asking, setAsking] = useState(false);
  const [pruned, setPruned] = useState<Schemas["PrunedPackages"] | null>(null);
  const verify = useMutation({ mutationFn: () => unwrap(api.POST("/v1/package-cache/verify")), onSuccess: refresh, meta: { quiet: true } });
  return (
    <section className="pk-actions" aria-label="Actions">
      <div className="pk-buttons">
        <Button icon="policy" disabled={empty} busy={verify.isPending} onClick={() => (setPruned(null), verify.mutate())}>
          Verify
        </Button>
        <Button icon="trash" variant="danger" disabled={empty} onClick={() => setAsking(true)}>
          Remove until … is left
        </Button>
      </div>
      {verify.error && <Problem error={verify.error} retry={() => verify.mutate()} />}
      {verify.data && <Verified result={verify.data} />}
      {pruned && (
        <p role="status" className="pk-result">
          {pruned.removed === 0 ? "Nothing had to be removed." : `Removed ${counted(pruned.removed, "entry", "entries")}, which freed ${format.bytes(pruned.freed_bytes)}.`}
        </p>
      )}
      {asking && (
        <Prune
          used={used}
          onClose={() => setAsking(false)}
          onDone={async (result) => {
            setAsking(false);
            verify.reset();
            setPruned(result);
            await refresh();
          }}
        />
      )}
    </section>
  );
}

const counted = (n: number, one: string, more: string) => `${n} ${n === 1 ? one : more}`;

function Prune({ used, onClose, onDone }: { used: number; onClose: () => void; onDone: (result: Schemas["PrunedPackages"]) => Promise<void> }) {
  const [typed, setTyped] = useState("");
  const keep = parseSize(typed);
  return (
    <Ask
      title="Remove until this much is left"
      description="The least recently used data is removed. What a sandbox needs again is fetched again."
      action={keep === 0 ? "Remove everything" : "Remove"}
      ready={keep !== null}
      onClose={onClose}
      onDo={async () => onDone(await unwrap(api.POST("/v1/package-cache/prune", { body: { keep_bytes: keep ?? used } })))}
    >
      <Field label="Data to keep" hint={`A size such as 500m or 1.5g; 0 removes everything. The cache has ${format.bytes(used)}.`} error={typed !== "" && keep === null ? "This is not a size." : undefined}>
        <input type="text" autoFocus autoComplete="off" spellCheck={false} maxLength={20} value={typed} onChange={(e) => setTyped(e.target.value)} />
      </Field>
    </Ask>
  );
}

function Verified({ result }: { result: Schemas["VerifiedPackages"] }) {
  const damaged = result.damaged ?? [];
  return (
    <div role={damaged.length > 0 ? "alert" : "status"} className={damaged.length > 0 ? "pk-result pk-damaged" : "pk-result"}>
      <p>
        Verified {counted(result.verified, "content", "contents")}, <Bytes n={result.size_bytes} />.{" "}
        {damaged.length === 0 ? "All have the digest of their name." : `${counted(damaged.length, "damaged content was", "damaged contents were")} removed, and will be fetched again when needed:`}
      </p>
      {damaged.length > 0 && (
        <ul>
          {damaged.slice(0, 100).map((sum) => (
            <li key={sum}>
              <CopyText text={sum} label={`${sum.slice(0, 12)}…`} />
            </li>
          ))}
          {damaged.length > 100 && <li>and {damaged.length - 100} more</li>}
        </ul>
      )}
    </div>
  );
}
