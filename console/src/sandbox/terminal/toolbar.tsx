import { type RefObject, useState } from "react";
import { IconButton, Kbd, Toggle } from "../../parts";
import type { XTerm } from "./xterm";

/** The search, and the controls that make a terminal usable with a screen reader. */
export function TerminalTools({ screen }: { screen: RefObject<XTerm | null> }) {
  const [text, setText] = useState("");
  const [noMatch, setNoMatch] = useState(false);
  const [reader, setReader] = useState(false);
  const find = (what: string, back = false) => setNoMatch(!(screen.current?.find(what, back) ?? true) && what !== "");
  return (
    <div className="sb-term-tools">
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          find(text);
        }}
      >
        <input
          type="search" aria-label="Search the terminal" placeholder="Search" value={text} aria-invalid={noMatch || undefined}
          onChange={(event) => {
            setText(event.currentTarget.value);
            find(event.currentTarget.value);
          }}
        />
        <IconButton icon="chevron-up" label="Previous match" onClick={() => find(text, true)} />
        <IconButton icon="chevron-down" label="Next match" onClick={() => find(text)} />
        <span className="sb-hidden" role="status">
          {noMatch ? "Nothing was found." : ""}
        </span>
      </form>
      <Toggle
        label="Screen reader" on={reader}
        onChange={(on) => {
          setReader(on);
          if (screen.current) screen.current.terminal.options.screenReaderMode = on;
        }}
      />
      <span className="quiet sb-hatch">
        <Kbd>Ctrl</Kbd> <Kbd>Shift</Kbd> <Kbd>F6</Kbd> leaves it
      </span>
    </div>
  );
}
