import type { EditorView } from "@codemirror/view";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { Badge, Button, Can, Confirm, Empty, format, Inert, inertLine, Loading, Problem, Time, toast } from "../../parts";
import { asProblem } from "../../api/problem";
import { useCan } from "../../api/session";
import { useRefresh, useSandbox } from "../queries";
import { modeText, shownAs } from "./filetype";
import type { Files } from "./inside";
import { type FileEntry, parentOf } from "./tree";

const Editor = lazy(async () => ({ default: (await import("./editor")).Editor }));

export interface ViewerProps {
  files: Files;
  path: string;
  entry: FileEntry | undefined;
  rename: () => void;
  remove: () => void;
  /** Called when unsaved changes appear or disappear. */
  onDirty: (dirty: boolean) => void;
}

/** One file: its text, its image, or a note that it is neither. */
export function Viewer({ files, path, entry, rename, remove, onDirty }: ViewerProps) {
  const sandbox = useSandbox();
  const can = useCan("operator");
  const refresh = useRefresh();
  const view = useRef<EditorView>(null);
  const [editing, edit] = useState(false);
  const [dirty, setDirty] = useState(false);
  const [busy, setBusy] = useState(false);
  const [conflict, setConflict] = useState(false);
  const file = useQuery({
    queryKey: ["file", sandbox.id, path],
    queryFn: async ({ signal }) => {
      // The version is read before the content, so that a write in between is a conflict.
      const seen = (await files.list(parentOf(path), signal)).find((one) => one.path === path);
      const bytes = await files.read(path, signal);
      return { bytes, seen, shown: shownAs(bytes) };
    },
    // A person who edits keeps the text, even if the file has changed inside.
    enabled: can && !editing, retry: false, staleTime: Number.POSITIVE_INFINITY, gcTime: 0,
  });
  useEffect(() => onDirty(dirty), [dirty, onDirty]);
  useEffect(() => () => onDirty(false), [onDirty]);

  const save = async (anyway: boolean) => {
    const editor = view.current;
    // The read-only view has the shortcut for saving too. It shows only the beginning of a long
    // file, and saving that would delete the rest.
    if (!editor || busy || !editing || !dirty) return;
    setBusy(true);
    try {
      const now = (await files.list(parentOf(path))).find((one) => one.path === path);
      // A program may have written the file since, and saving would undo that.
      const seen = file.data?.seen;
      if (!anyway && now && (now.modified_at !== seen?.modified_at || now.size !== seen?.size)) {
        setConflict(true);
        return;
      }
      await files.write(path, new TextEncoder().encode(editor.state.sliceDoc()));
      setDirty(false);
      edit(false);
      await Promise.all([refresh("files", "changes"), file.refetch()]);
      toast("The file was saved.", { tone: "ok" });
    } catch (thrown) {
      toast(asProblem(thrown).text, { tone: "bad" });
    } finally {
      setBusy(false);
    }
  };

  const shown = file.data?.shown;
  const editable = shown?.as === "text" && shown.whole && shown.exact;
  return (
    <section className="sb-viewer" aria-label="File">
      <div className="sb-bar">
        <h2 className="mono">
          <Inert text={path} />
        </h2>
        {entry && (
          <span className="quiet">
            {format.bytes(entry.size)} · <span className="mono">{modeText(entry.mode)}</span> {entry.modified_at && <Time at={entry.modified_at} relative />}
          </span>
        )}
        <span className="sb-fill" />
        {editing ? (
          <>
            <Button
              onClick={() => {
                edit(false);
                setDirty(false);
              }}
            >
              Discard edits
            </Button>
            <Button variant="primary" busy={busy} disabled={!dirty} onClick={() => void save(false)}>
              Save
            </Button>
          </>
        ) : (
          <Can scope="operator">
            {editable && (
              <Button icon="edit" onClick={() => edit(true)}>
                Edit
              </Button>
            )}
            <a className="p-button p-button-plain" href={files.url(path)} download>
              Download
            </a>
            <Button onClick={rename}>Rename</Button>
            <Button variant="danger" onClick={remove}>
              Delete
            </Button>
          </Can>
        )}
      </div>
      {!can ? (
        <Empty title="Viewers see only the names of files">Reading a file takes data out of the sandbox, which requires the scope operator.</Empty>
      ) : file.isPending ? (
        <Loading what="Reading the file" />
      ) : !file.data || !shown ? (
        <Problem error={file.error} retry={() => void file.refetch()} />
      ) : shown.as === "image" ? (
        <ImageView bytes={file.data.bytes} type={shown.type} path={path} />
      ) : shown.as === "bytes" ? (
        <Empty title="This file cannot be shown">It is neither text nor an image of a supported type.</Empty>
      ) : (
        <>
          {!shown.whole && <p className="sb-note">Only the first mebibyte is shown.</p>}
          {!shown.exact && (
            <p className="sb-note">
              <Badge tone="warn">not exact</Badge> It is not valid UTF-8: invalid bytes are shown as �. It cannot be edited here.
            </p>
          )}
          <Suspense fallback={<Loading />}>
            <Editor key={editing ? "edit" : "read"} text={shown.text} label={`Contents of ${inertLine(path).text}`} writable={editing} view={view} onChange={setDirty} onSave={() => void save(false)} />
          </Suspense>
        </>
      )}
      <Confirm
        open={conflict} onOpenChange={setConflict} title="The file has changed" action="Save anyway" danger
        what="A program inside wrote this file after you opened it. Saving discards what it wrote."
        onConfirm={() => save(true)}
      />
    </section>
  );
}

function ImageView({ bytes, type, path }: { bytes: Uint8Array<ArrayBuffer>; type: string; path: string }) {
  const [url, setURL] = useState("");
  const [broken, setBroken] = useState(false);
  useEffect(() => {
    const created = URL.createObjectURL(new Blob([bytes], { type }));
    setURL(created);
    return () => URL.revokeObjectURL(created);
  }, [bytes, type]);
  if (broken) return <Empty title="This image cannot be shown" />;
  return <div className="sb-picture">{url && <img src={url} alt={`Image in ${inertLine(path).text}`} onError={() => setBroken(true)} />}</div>;
}
