// The difference of two documents, in one column.
import { unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { basics } from "./editor";

/** openDiff shows the changes from the first document to the second. */
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

/** differs reports whether two documents differ in more than trailing space. */
export function differs(a: string, b: string): boolean {
  return a.trimEnd() !== b.trimEnd();
}
