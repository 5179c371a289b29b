// The editor of policies: YAML with the schema of policies.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { linter, lintGutter, lintKeymap, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, highlightActiveLineGutter, hoverTooltip, keymap, lineNumbers, type Tooltip } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { inertLine } from "../parts/inert";
import { rangesOf, type Finding } from "./lint";
import { at, fieldsAt, valuesAt, type Schema } from "./schema";
import { positionAt } from "./yamlpath";

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--info)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.keyword], color: "var(--ok)" },
  { tag: tags.comment, color: "var(--text-quiet)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.bracket, tags.squareBracket, tags.brace], color: "var(--text-quiet)" },
]);

const editorTheme = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--bg-raised)", color: "var(--text)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--bg-raised)", color: "var(--text-quiet)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 8%, transparent)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-bg) !important" },
  ".cm-tooltip": { backgroundColor: "var(--bg-raised)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", boxShadow: "var(--shadow)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-text)" },
  ".cm-completionInfo": { maxWidth: "340px" },
  ".cm-panels": { backgroundColor: "var(--bg-raised)", color: "var(--text)" },
  ".cm-insertedLine, .cm-changedLine": { backgroundColor: "var(--ok-bg)" },
  ".cm-deletedChunk": { backgroundColor: "var(--bad-bg)" },
  // An underline instead of a darker background, so that words keep their contrast.
  ".cm-changedText": { background: "none !important", boxShadow: "inset 0 -2px var(--ok)" },
  ".cm-deletedText": { background: "none !important", boxShadow: "inset 0 -2px var(--bad)" },
  ".cm-collapsedLines": { color: "var(--text-quiet)", background: "var(--bg-sunken)" },
});

/** The extensions of every YAML editor of the console. */
export function basics(label: string): Extension[] {
  return [
    lineNumbers(),
    foldGutter(),
    drawSelection(),
    // Invisible characters are shown, because they can hide what a line means.
    highlightSpecialChars(),
    indentUnit.of("  "),
    EditorState.tabSize.of(2),
    EditorView.lineWrapping,
    yaml(),
    syntaxHighlighting(colours),
    editorTheme,
    EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", autocorrect: "off", autocapitalize: "off" }),
  ];
}

/** completions returns the fields or values that are valid at a position. */
export function completions(schema: Schema, context: CompletionContext): CompletionResult | null {
  const text = context.state.doc.toString();
  const position = positionAt(text, context.pos);
  if (!position || (position.typed === "" && !context.explicit)) return null;
  const options = position.at === "key" ? fieldOptions(schema, position.path, text, position.from) : valueOptions(schema, position.path);
  return options.length > 0 ? { from: position.from, options, validFor: /^[\w.-]*$/ } : null;
}

function fieldOptions(schema: Schema, path: readonly string[], text: string, from: number): Completion[] {
  const line = text.slice(text.lastIndexOf("\n", from - 1) + 1, from);
  const flow = /[{[]/.test(line);
  // The content of a field is indented by two columns.
  const below = `\n${" ".repeat(line.length + 2)}`;
  return fieldsAt(schema, path).map((f) => {
    const tail = flow || f.shape === "value" ? " " : f.shape === "list" ? `${below}- ` : below;
    return { label: f.name, type: "property", apply: `${f.name}:${tail}`, ...(f.doc ? { info: f.doc } : {}) };
  });
}

function valueOptions(schema: Schema, path: readonly string[]): Completion[] {
  return valuesAt(schema, path).map((v) => ({ label: v, type: "enum" }));
}

/** docAt returns the meaning of the field whose name or value is at a position. */
export function docAt(schema: Schema, text: string, pos: number): { path: string[]; doc: string; from: number; to: number } | null {
  const word = /[\w.-]/;
  let [from, to] = [pos, pos];
  while (from > 0 && word.test(text[from - 1] ?? "")) from--;
  while (to < text.length && word.test(text[to] ?? "")) to++;
  if (from === to) return null;
  const position = positionAt(text, to);
  if (!position) return null;
  const path = position.at === "key" ? [...position.path, text.slice(from, to)] : position.path.filter((step, i, all) => step !== "[]" || i < all.length - 1);
  const doc = at(schema, path)?.description;
  return doc ? { path, doc, from, to } : null;
}

function hover(schema: Schema): Extension {
  return hoverTooltip((view, pos): Tooltip | null => {
    const found = docAt(schema, view.state.doc.toString(), pos);
    if (!found) return null;
    return {
      pos: found.from,
      end: found.to,
      above: true,
      create: () => {
        const dom = document.createElement("div");
        dom.className = "y-hover";
        const name = document.createElement("code");
        name.textContent = found.path.join(".").replaceAll(".[]", "[]");
        const doc = document.createElement("p");
        doc.textContent = found.doc;
        dom.append(name, doc);
        return { dom };
      },
    };
  });
}

/** breakAfterKey starts the content of a field, indented by two columns. */
function breakAfterKey(view: EditorView): boolean {
  const { from, to } = view.state.selection.main;
  const line = view.state.doc.lineAt(from);
  const before = view.state.sliceDoc(line.from, from);
  const key = /^(\s*(?:- +)*)[\w.-]+:\s*$/.exec(before);
  if (!key || to > line.to || view.state.sliceDoc(to, line.to).trim() !== "") return false;
  const insert = `\n${" ".repeat((key[1] ?? "").length + 2)}`;
  view.dispatch({ changes: { from, to, insert }, selection: { anchor: from + insert.length }, scrollIntoView: true, userEvent: "input" });
  return true;
}

export interface EditorOptions {
  document: string;
  schema: Schema;
  lint: (document: string) => Promise<readonly Finding[]>;
  onChange: (document: string) => void;
  readOnly: boolean;
}

function diagnostics(lint: EditorOptions["lint"]): Extension {
  return linter(
    async (view): Promise<Diagnostic[]> => {
      const text = view.state.doc.toString();
      const found = await lint(text);
      if (view.state.doc.toString() !== text) return [];
      return rangesOf(text, found).map((r) => ({ from: r.from, to: r.to, severity: r.severity, message: inertLine(r.text).text }));
    },
    { delay: 400 },
  );
}

/** openEditor shows an editor in an element. */
export function openEditor(parent: HTMLElement, o: EditorOptions): EditorView {
  return new EditorView({
    parent,
    state: EditorState.create({
      doc: o.document,
      extensions: [
        ...basics("Policy"),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        bracketMatching(),
        closeBrackets(),
        history(),
        search({ top: true }),
        highlightSelectionMatches(),
        autocompletion({ override: [(context) => completions(o.schema, context)], icons: false }),
        hover(o.schema),
        lintGutter(),
        diagnostics(o.lint),
        // Tab is not bound: a keyboard user must be able to leave the editor.
        keymap.of([{ key: "Enter", run: breakAfterKey }, ...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap]),
        EditorState.readOnly.of(o.readOnly),
        EditorView.updateListener.of((u) => {
          if (u.docChanged) o.onChange(u.state.doc.toString());
        }),
      ],
    }),
  });
}

/** goToLine puts the cursor at a line and shows it. */
export function goToLine(view: EditorView, line: number): void {
  const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
  view.dispatch({ selection: { anchor: at.from + (at.text.length - at.text.trimStart().length) }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
  view.focus();
}

/** replaceAll puts another document into an editor; undo brings the old one back. */
export function replaceAll(view: EditorView, document: string): void {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: document } });
}
