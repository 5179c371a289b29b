import { useSyncExternalStore } from "react";
import { IconButton } from "./button";
import type { Tone } from "./badge";
import { Inert } from "./values";

interface Note {
  id: number;
  text: string;
  tone: Tone;
}

const limit = 4;
let notes: Note[] = [];
let next = 1;
const listeners = new Set<() => void>();

function set(changed: Note[]) {
  notes = changed;
  for (const listener of listeners) listener();
}

/** Reports in a corner that an action succeeded or failed. */
export function toast(text: string, { tone = "info" }: { tone?: Tone } = {}) {
  const id = next++;
  set([...notes, { id, text, tone }].slice(-limit));
  setTimeout(() => dismiss(id), tone === "bad" ? 12_000 : 5_000);
}

function dismiss(id: number) {
  set(notes.filter((note) => note.id !== id));
}

/** Where toasts are shown. It is used once, in the frame. */
export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => notes,
  );
  return (
    <div className="p-toasts" role="status" aria-live="polite">
      {shown.map((note) => (
        <div key={note.id} className={`p-toast p-tone-${note.tone}`}>
          <Inert text={note.text} />
          <IconButton icon="close" label="Dismiss" onClick={() => dismiss(note.id)} />
        </div>
      ))}
    </div>
  );
}
