import { useNavigate } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { endSandbox } from "../api/end";
import { asProblem } from "../api/problem";
import { useCan } from "../api/session";
import { Button, Confirm, Dialog, Field, Loading, Problem, toast, Toggle, format, inertLine } from "../parts";
import { isLive, snapshotsQuery, useRefresh, useSandbox } from "./queries";
import { lineage } from "./snapshots/tree";

type Action = "stop" | "pause" | "snapshot" | "fork" | "rollback" | "forget";

/** The actions on a whole sandbox. Each describes its effect. */
export function Actions() {
  const sandbox = useSandbox();
  const can = useCan("operator");
  const refresh = useRefresh();
  const navigate = useNavigate();
  const [dialog, setDialog] = useState<Action>();
  const [busy, setBusy] = useState(false);
  if (!can) return null;
  const params = { path: { id: sandbox.id } };
  const close = (open: boolean) => {
    if (!open) setDialog(undefined);
  };
  const open = (what: Action) => ({ open: dialog === what, onOpenChange: close });
  const name = sandbox.name || sandbox.id;
  const resume = async () => {
    setBusy(true);
    try {
      await unwrap(api.POST("/v1/sandboxes/{id}/resume", { params, body: {} }));
      toast("It continues where it was.", { tone: "ok" });
    } catch (thrown) {
      toast(asProblem(thrown).text, { tone: "bad" });
    } finally {
      await refresh();
      setBusy(false);
    }
  };
  const running = isLive(sandbox);
  const paused = sandbox.state === "paused";
  return (
    <>
      {paused || sandbox.state === "resuming" ? (
        <Button icon="play" variant="primary" busy={busy || sandbox.state === "resuming"} onClick={() => void resume()}>
          Resume
        </Button>
      ) : (
        <Button icon="pause" disabled={!running} onClick={() => setDialog("pause")}>
          Pause
        </Button>
      )}
      <Button icon="snapshot" disabled={!running} onClick={() => setDialog("snapshot")}>
        Snapshot
      </Button>
      <Button icon="fork" disabled={!running} onClick={() => setDialog("fork")}>
        Fork
      </Button>
      <Button icon="rollback" disabled={!running} onClick={() => setDialog("rollback")}>
        Roll back
      </Button>
      {sandbox.state === "stopped" ? (
        <Button icon="trash" variant="danger" onClick={() => setDialog("forget")}>
          Forget
        </Button>
      ) : (
        <Button icon="stop" variant="danger" disabled={sandbox.state === "stopping"} onClick={() => setDialog("stop")}>
          Stop
        </Button>
      )}
      <Confirm
        {...open("pause")} title={`Pause ${inertLine(name).text}?`} action="Pause"
        what="Its memory and processes are saved, and its programs stop. Until it is resumed it uses only disk. Then it continues where it was. Its outside connections break."
        onConfirm={async () => {
          await unwrap(api.POST("/v1/sandboxes/{id}/pause", { params, body: {} }));
          await refresh();
        }}
      />
      <Confirm
        {...open("stop")} title={`Stop ${inertLine(name).text}?`} action="Stop" danger
        what={
          paused
            ? "Its saved state is removed: files, memory, and its recordings too. The audit log keeps its entries."
            : "Its programs end at once, and its files are lost unless a snapshot has them or its changes are exported first. Its audit entries and recordings stay."
        }
        onConfirm={async () => {
          const ended = await endSandbox(sandbox.id, sandbox.state);
          if (!ended) toast("The sandbox had already ended.");
          if (paused) void navigate({ to: "/" });
          else await refresh();
        }}
      />
      <Confirm
        {...open("forget")} title={`Forget ${inertLine(name).text}?`} action="Forget" danger
        what="Its recordings, its network log and its description are removed. The audit log keeps its entries."
        onConfirm={async () => {
          await unwrap(api.DELETE("/v1/sandboxes/{id}", { params }));
          void navigate({ to: "/" });
        }}
      />
      <TakeSnapshot {...open("snapshot")} />
      <ForkDialog {...open("fork")} />
      <RollBackDialog {...open("rollback")} />
    </>
  );
}

interface DialogProps {
  open: boolean;
  onOpenChange: (open: boolean) => void;
}

/** Asks for the name of a snapshot and takes it. */
export function TakeSnapshot({ open, onOpenChange }: DialogProps) {
  const sandbox = useSandbox();
  const [name, setName] = useState("");
  const [filesOnly, setFilesOnly] = useState(false);
  const refresh = useRefresh();
  const take = useSubmit(async () => {
    const taken = await unwrap(
      api.POST("/v1/sandboxes/{id}/snapshots", { params: { path: { id: sandbox.id } }, body: { files_only: filesOnly, ...(name ? { name } : {}) } }),
    );
    await refresh("snapshots");
    toast(`Snapshot ${taken.name || taken.id} was taken.`, { tone: "ok" });
    setName("");
    onOpenChange(false);
  });
  return (
    <Dialog
      open={open} onOpenChange={onOpenChange} title="Take a snapshot"
      description="Saves its current state. The sandbox pauses for a moment and continues."
      footer={<DialogFooter cancel={() => onOpenChange(false)} action="Take snapshot" {...take} />}
    >
      <form className="sb-form" onSubmit={take.submit}>
        <Field label="Name" hint="If several snapshots have the same name, it means the newest. May be empty.">
          <input type="text" value={name} maxLength={256} onChange={(e) => setName(e.currentTarget.value)} />
        </Field>
        <Toggle label="Files only, without memory and processes" on={filesOnly} onChange={setFilesOnly} />
        {take.error !== undefined && <Problem error={take.error} />}
      </form>
    </Dialog>
  );
}

function ForkDialog({ open, onOpenChange }: DialogProps) {
  const sandbox = useSandbox();
  const navigate = useNavigate();
  const [count, setCount] = useState(1);
  const fork = useSubmit(async () => {
    const { forks } = await unwrap(api.POST("/v1/sandboxes/{id}/fork", { params: { path: { id: sandbox.id } }, body: { count } }));
    const copies = (forks ?? []).flatMap((one: Schemas["Fork"]) => (one.sandbox ? [one.sandbox] : []));
    const failed = (forks ?? []).find((one: Schemas["Fork"]) => one.error)?.error;
    const [first] = copies;
    if (!first) throw new Error(failed?.detail ?? "No copy was created.");
    toast(failed ? `${copies.length} of ${count} copies were made: ${failed.detail ?? failed.title}` : `${copies.length === 1 ? "A copy was" : `${copies.length} copies were`} made.`, { tone: failed ? "warn" : "ok" });
    onOpenChange(false);
    if (copies.length === 1) void navigate({ to: "/s/$id/$tab", params: { id: first.id, tab: "live" } });
    else void navigate({ to: "/" });
  });
  return (
    <Dialog
      open={open} onOpenChange={onOpenChange} title="Fork this sandbox"
      description="Each copy gets the current files, memory and processes, the same policy, and its own time limit. This sandbox continues."
      footer={<DialogFooter cancel={() => onOpenChange(false)} action={count === 1 ? "Fork" : `Fork ${count} times`} {...fork} />}
    >
      <form className="sb-form" onSubmit={fork.submit}>
        <Field label="Copies">
          <input type="number" min={1} max={100} value={count} onChange={(e) => setCount(Math.min(100, Math.max(1, Math.floor(e.currentTarget.valueAsNumber) || 1)))} />
        </Field>
        {fork.error !== undefined && <Problem error={fork.error} />}
      </form>
    </Dialog>
  );
}

function RollBackDialog({ open, onOpenChange }: DialogProps) {
  const sandbox = useSandbox();
  const snapshots = useQuery({ ...snapshotsQuery, enabled: open });
  const [chosen, choose] = useState<string>();
  const roll = useRollBack(() => onOpenChange(false));
  const own = lineage(snapshots.data ?? [], sandbox.id, sandbox.origin).sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
  // The newest snapshot, unless the user chose another; without any it is the start.
  const to = chosen ?? own[0]?.id ?? "";
  return (
    <Dialog
      open={open} onOpenChange={onOpenChange} title="Roll back"
      description="All later changes of files and processes in the sandbox are lost. Data that has left the sandbox is not affected. The audit log keeps its entries."
      footer={
        <>
          <Button onClick={() => onOpenChange(false)}>Cancel</Button>
          <Button variant="danger" busy={roll.busy} disabled={snapshots.isPending} onClick={() => roll.run(to)}>
            Roll back
          </Button>
        </>
      }
    >
      {snapshots.isPending ? (
        <Loading />
      ) : (
        <fieldset className="sb-choices">
          <legend>Back to</legend>
          {[...own.map((one) => one.id), ""].map((id) => {
            const snapshot = own.find((one) => one.id === id);
            return (
              <label key={id}>
                <input type="radio" name="rollback" checked={to === id} onChange={() => choose(id)} />
                <span>{snapshot ? inertLine(snapshot.name || snapshot.id).text : "Its start"}</span>
                <span className="quiet">{snapshot ? format.localTime(new Date(snapshot.created_at)) : "its initial state"}</span>
              </label>
            );
          })}
        </fieldset>
      )}
      {roll.error !== undefined && <Problem error={roll.error} />}
    </Dialog>
  );
}

/** Rolls the sandbox back to a snapshot, or resets it to its initial state if none is named. */
export function useRollBack(done: () => void) {
  const sandbox = useSandbox();
  const refresh = useRefresh();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const back = async (snapshot: string) => {
    const params = { path: { id: sandbox.id } };
    if (snapshot) await unwrap(api.POST("/v1/sandboxes/{id}/rollback", { params, body: { snapshot } }));
    else await unwrap(api.POST("/v1/sandboxes/{id}/reset", { params }));
    await refresh("snapshots", "changes", "processes", "terminals", "files");
    toast("The sandbox was rolled back.", { tone: "ok" });
  };
  const run = (snapshot: string) => {
    setBusy(true);
    setError(undefined);
    back(snapshot).then(done, setError).finally(() => setBusy(false));
  };
  return { run, back, busy, error };
}

/** A form for an action, with the result of the action. */
export function useSubmit(action: () => Promise<void>) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const run = () => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    action().catch(setError).finally(() => setBusy(false));
  };
  return {
    busy, error, run,
    submit: (event: { preventDefault: () => void }) => {
      event.preventDefault();
      run();
    },
  };
}

export function DialogFooter({ cancel, action, busy, run, danger, disabled }: { cancel: () => void; action: string; busy: boolean; run: () => void; danger?: boolean; disabled?: boolean }) {
  return (
    <>
      <Button onClick={cancel}>Cancel</Button>
      <Button variant={danger ? "danger" : "primary"} busy={busy} disabled={disabled} onClick={run}>
        {action}
      </Button>
    </>
  );
}
