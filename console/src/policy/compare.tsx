import { useEffect, useRef } from "react";
import { Field, Select } from "../parts";
import { differs, openDiff } from "./diff";

/** A document that a draft can start from, or be compared with. */
export interface NamedDocument {
  id: string;
  label: string;
  document: string;
}

/** The difference between the draft and another document. */
export function Compare({ draft, texts, against, onAgainst }: { draft: string; texts: readonly NamedDocument[]; against: string | undefined; onAgainst: (id: string) => void }) {
  const parent = useRef<HTMLDivElement>(null);
  // The draft replaces this document, so it is on the left.
  const text = texts.find((t) => t.id === against) ?? texts.findLast((t) => t.id.startsWith("layer-")) ?? texts[0];
  const before = text?.document;
  useEffect(() => {
    if (!parent.current || before === undefined) return;
    const view = openDiff(parent.current, before, draft);
    return () => view.destroy();
  }, [before, draft]);
  if (!text) return <p className="quiet">There is no document to compare with yet.</p>;
  return (
    <>
      <Field label="The draft, compared with">
        <Select label="The draft, compared with" value={text.id} options={texts.map((t) => ({ value: t.id, label: t.label }))} onChange={onAgainst} />
      </Field>
      {!differs(text.document, draft) && <p role="status">The documents are the same.</p>}
      <div ref={parent} className="y-editor" data-keys="own" />
    </>
  );
}
