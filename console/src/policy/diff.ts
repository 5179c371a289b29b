// The difference of two documents, one above the other.
import { unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { basics } from "./editor";

/** openDiff shows what makes the second document of the first. */
export function openDiff(parent: HTMLElement, before: string, after: string): EditorView {
  return new EditorView({
    parent,
    state: EditorState.create({
      doc: after,
      extensions: [
        ...basics("Difference"),
        EditorState.readOnly.of(true),
        unifiedMergeView({ original: before, mergeControls: false, gutter: true, highlightChanges: true, collapseUnchanged: { margin: 3, minSize: 6 } }),
      ],
    }),
  });
}

/** differs reports whether two documents differ, blank ends aside. */
export function differs(a: string, b: string): boolean {
  return a.trimEnd() !== b.trimEnd();
}
