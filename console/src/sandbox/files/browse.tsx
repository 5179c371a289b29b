import { useQueries } from "@tanstack/react-query";
import { useBlocker } from "@tanstack/react-router";
import { type DragEvent, useEffect, useMemo, useRef, useState } from "react";
import { asProblem } from "../../api/problem";
import { Button, Can, Confirm, Dialog, Empty, Field, IconButton, Inert, inertLine, Problem, toast } from "../../parts";
import { useCan } from "../../api/session";
import { DialogFooter, useSubmit } from "../actions";
import { useRefresh, useSandbox } from "../queries";
import { useFilters } from "../search";
import { Files } from "./inside";
import { ancestors, type FileEntry, joinPath, type Listings, parentOf, rowsOf, nameError } from "./tree";
import { TreeView } from "./treeview";
import { Viewer } from "./viewer";

const root = "/";

/** The files of a sandbox as a tree, and one of them beside it. */
export function Browse({ onUnsaved }: { onUnsaved: (unsaved: boolean) => void }) {
  const sandbox = useSandbox();
  const can = useCan("operator");
  const refresh = useRefresh();
  const [filters, set] = useFilters();
  const files = useMemo(() => new Files(sandbox.id), [sandbox.id]);
  const path = filters.path ?? "";
  const first = sandbox.workspace ? "/workspace" : "/home/user";
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set(path ? ancestors(root, path) : [...ancestors(root, first), first]));
  const openedDirs = useRef(new Set<string>());
  const [focused, setFocused] = useState(path || first);
  const [dialog, setDialog] = useState<"directory" | "rename" | "remove" | undefined>();
  const [dropping, setDropping] = useState(false);
  const [sending, setSending] = useState(false);
  const [dirty, setDirty] = useState(false);
  useEffect(() => {
    onUnsaved(dirty);
    return () => onUnsaved(false);
  }, [dirty, onUnsaved]);
  const blocker = useBlocker({ shouldBlockFn: () => dirty, enableBeforeUnload: dirty, withResolver: true });
  const [replacing, setReplacing] = useState<{ list: File[]; names: string[] }>();
  const picker = useRef<HTMLInputElement>(null);

  const dirs = [root, ...open];
  const queries = useQueries({
    queries: dirs.map((dir) => ({ queryKey: ["files", sandbox.id, dir], queryFn: ({ signal }: { signal: AbortSignal }) => files.list(dir, signal), retry: false, staleTime: 10_000 })),
  });
  const listings: Listings = new Map(dirs.flatMap((dir, i) => (queries[i]?.data ? [[dir, queries[i].data] as const] : [])));
  const rows = rowsOf(root, listings, open);
  const entry = rows.find((row) => row.path === path);
  const failed = queries.findIndex((query) => query.error);
  // If the URL names a directory, it is opened, and no file is shown.
  const parentRead = listings.has(parentOf(path)) || queries[dirs.indexOf(parentOf(path))]?.isError === true;
  if (entry?.type === "dir" && !openedDirs.current.has(path)) {
    openedDirs.current.add(path);
    if (!open.has(path)) setOpen(new Set([...open, path]));
  }
  const focusedRow = rows.find((row) => row.path === focused);
  // New files and directories are created in the focused directory.
  const targetDir = focusedRow?.type === "dir" ? focusedRow.path : focusedRow ? parentOf(focusedRow.path) : path ? parentOf(path) : first;

  const toggle = (dir: string) => setOpen((before) => new Set(before.has(dir) ? [...before].filter((one) => one !== dir) : [...before, dir]));
  const choose = (to: string) => {
    if (to !== path) set({ path: to }, true);
  };
  const refreshFiles = () => refresh("files", "changes");

  const send = async (list: File[], overwrite = false) => {
    const existing = new Set((await files.list(targetDir)).map((one) => one.name));
    const names = list.map((one) => one.name).filter((name) => existing.has(name));
    if (names.length > 0 && !overwrite) return setReplacing({ list, names });
    setSending(true);
    let sent = 0;
    try {
      for (const one of list) {
        await files.write(joinPath(targetDir, one.name), one);
        sent++;
      }
      toast(sent === 1 ? `${inertLine(list[0]?.name ?? "").text} was uploaded to ${targetDir}.` : `${sent} files were uploaded to ${targetDir}.`, { tone: "ok" });
    } catch (thrown) {
      toast(`${sent} of ${list.length} were uploaded: ${asProblem(thrown).text}`, { tone: "bad" });
    } finally {
      setSending(false);
      setOpen((before) => new Set([...before, targetDir]));
      await refreshFiles();
    }
  };
  const upload = (list: File[]) => {
    if (list.length > 0) send(list).catch((thrown: unknown) => toast(asProblem(thrown).text, { tone: "bad" }));
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setDropping(false);
    upload([...event.dataTransfer.files]);
  };

  return (
    <div className="sb-split">
      <section
        className={dropping ? "sb-side sb-drop" : "sb-side"} aria-label="Files of the sandbox"
        onDragOver={(event) => {
          if (!can || !event.dataTransfer.types.includes("Files")) return;
          event.preventDefault();
          setDropping(true);
        }}
        onDragLeave={() => setDropping(false)} onDrop={can ? drop : undefined}
      >
        <div className="sb-bar">
          <Can scope="operator">
            <Button icon="upload" busy={sending} title={`To ${inertLine(targetDir).text}`} onClick={() => picker.current?.click()}>
              Upload
            </Button>
            <input
              ref={picker} type="file" multiple hidden aria-label="Files to upload"
              onChange={(event) => {
                upload([...(event.currentTarget.files ?? [])]);
                event.currentTarget.value = "";
              }}
            />
            <Button icon="plus" onClick={() => setDialog("directory")}>
              New directory
            </Button>
          </Can>
          <span className="sb-fill" />
          <IconButton icon="refresh" label="Read again" onClick={() => void refresh("files")} />
        </div>
        <p className="quiet sb-here">
          {dropping ? "Drop to upload to " : "In "}
          <span className="mono">
            <Inert text={targetDir} />
          </span>
        </p>
        {failed >= 0 && <Problem error={queries[failed]?.error} retry={() => void queries[failed]?.refetch()} />}
        <TreeView rows={rows} selected={path} focused={focused} onFocus={setFocused} onToggle={toggle} onChoose={(node) => choose(node.path)} />
      </section>
      <div className="sb-main">
        {path && entry?.type !== "dir" && (entry || parentRead) ? (
          <Viewer key={path} files={files} path={path} entry={entry} rename={() => setDialog("rename")} remove={() => setDialog("remove")} onDirty={setDirty} />
        ) : (
          <Empty title="Choose a file">Files can be dropped on the tree to upload them.</Empty>
        )}
      </div>
      <NameDialog
        open={dialog === "directory"} onOpenChange={() => setDialog(undefined)} title="New directory" action="Create directory" where={targetDir} from=""
        onName={async (name) => {
          await files.makeDirectory(joinPath(targetDir, name));
          setOpen((before) => new Set([...before, targetDir]));
          await refreshFiles();
        }}
      />
      <NameDialog
        open={dialog === "rename"} onOpenChange={() => setDialog(undefined)} title="Rename" action="Rename" where={parentOf(path)} from={path.slice(path.lastIndexOf("/") + 1)}
        onName={async (name) => {
          const to = joinPath(parentOf(path), name);
          if ((await files.list(parentOf(path))).some((one: FileEntry) => one.path === to)) throw new Error("A file or directory of this name exists already.");
          await files.move(path, to);
          await refreshFiles();
          set({ path: to });
        }}
      />
      <Confirm
        open={dialog === "remove"} onOpenChange={() => setDialog(undefined)} title="Delete this file?" action="Delete" danger what={`${inertLine(path).text} is removed inside the sandbox.`}
        onConfirm={async () => {
          await files.remove(path);
          await refreshFiles();
          set({ path: undefined });
        }}
      />
      <Confirm
        open={blocker.status === "blocked"} onOpenChange={() => blocker.reset?.()} title="Leave without saving?" action="Leave" danger what="Your edits are not saved and will be lost."
        onConfirm={() => blocker.proceed?.()}
      />
      <Confirm
        open={replacing !== undefined} onOpenChange={() => setReplacing(undefined)} title="Replace files?" action="Replace" danger
        what={`In ${inertLine(targetDir).text} these files exist already: ${inertLine((replacing?.names ?? []).join(", ")).text}`}
        onConfirm={() => send(replacing?.list ?? [], true)}
      />
    </div>
  );
}

interface NameDialogProps {
  open: boolean;
  onOpenChange: () => void;
  title: string;
  action: string;
  where: string;
  from: string;
  onName: (name: string) => Promise<void>;
}

function NameDialog({ open, onOpenChange, title, action, where, from, onName }: NameDialogProps) {
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title={title}>
      {open && <NameForm action={action} where={where} from={from} onName={onName} close={onOpenChange} />}
    </Dialog>
  );
}

function NameForm({ action, where, from, onName, close }: Pick<NameDialogProps, "action" | "where" | "from" | "onName"> & { close: () => void }) {
  const [name, setName] = useState(from);
  const invalid = nameError(name);
  const submission = useSubmit(async () => {
    if (invalid) throw new Error(invalid);
    await onName(name);
    close();
  });
  return (
    <form className="sb-form" onSubmit={submission.submit}>
      <Field label="Name" hint={<>In {inertLine(where).text}</>} error={name !== "" && invalid ? invalid : undefined}>
        <input type="text" value={name} autoFocus onChange={(event) => setName(event.currentTarget.value)} />
      </Field>
      {submission.error !== undefined && <Problem error={submission.error} />}
      <footer className="sb-form-foot">
        <DialogFooter cancel={close} action={action} busy={submission.busy} run={submission.run} disabled={invalid !== ""} />
      </footer>
    </form>
  );
}
