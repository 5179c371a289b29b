import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { EditorView, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { type RefObject, useEffect, useRef } from "react";

export interface EditorProps {
  text: string;
  label: string;
  writable: boolean;
  /** Is set to the editor, from which the current text can be read. */
  view: RefObject<EditorView | null>;
  onChange: (changed: boolean) => void;
  onSave: () => void;
}

// These invisible characters are shown as symbols: marks that change the reading direction, and
// characters without width, can hide what a line means.
const invisible = /[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

const editorTheme = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--bg-sunken)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", fontSize: "12.5px", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--accent)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)" },
  ".cm-gutters": { backgroundColor: "var(--bg-sunken)", color: "var(--text-quiet)", border: "none" },
  ".cm-specialChar": { color: "var(--bad)", fontWeight: "bold" },
  ".cm-selectionMatch": { backgroundColor: "var(--accent-bg)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-bg)" },
  ".cm-panels": { backgroundColor: "var(--bg-raised)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-textfield": { backgroundColor: "var(--bg)", border: "1px solid var(--line-strong)" },
  ".cm-button": { backgroundImage: "none", backgroundColor: "var(--bg)", border: "1px solid var(--line-strong)" },
});

/** The text of a file, read-only or editable. */
export function Editor({ text, label, writable, view, onChange, onSave }: EditorProps) {
  const editorElement = useRef<HTMLDivElement>(null);
  const callbacks = useRef({ onChange, onSave });
  callbacks.current = { onChange, onSave };
  useEffect(() => {
    if (!editorElement.current) return;
    // Only one kind of line ending separates lines. The others stay in the text, so that they are
    // saved unchanged.
    const lineEnding = /\r\n/.test(text) && !/(^|[^\r])\n/.test(text) ? "\r\n" : "\n";
    const state = EditorState.create({
      doc: text,
      extensions: [
        EditorState.lineSeparator.of(lineEnding), EditorState.readOnly.of(!writable), lineNumbers(), history(), search({ top: true }), highlightSelectionMatches(), editorTheme,
        highlightSpecialChars({ addSpecialChars: invisible }), EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": label, ...(writable ? {} : { "aria-readonly": "true", tabindex: "0" }) }),
        // Tab leaves the editor, as in every other field.
        keymap.of([{ key: "Mod-s", preventDefault: true, run: () => (callbacks.current.onSave(), true) }, ...defaultKeymap, ...historyKeymap, ...searchKeymap]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) callbacks.current.onChange(!update.state.doc.eq(state.doc));
        }),
      ],
    });
    const editor = new EditorView({ state, parent: editorElement.current });
    view.current = editor;
    if (writable) editor.focus();
    return () => {
      view.current = null;
      editor.destroy();
    };
  }, [text, label, writable, view]);
  return <div className="sb-editor" ref={editorElement} />;
}
