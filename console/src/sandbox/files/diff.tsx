import { useMemo, useState } from "react";
import { Button, Inert, inertLine } from "../../parts";
import { type Hunk, type Line, parseUnified } from "./unified";

/** The number of lines that are shown before the user asks for all. */
const limit = 1500;

const signs: Record<Line["kind"], string> = { added: "+", removed: "−", same: " ", note: "" };
const labels: Record<Line["kind"], string> = { added: "added: ", removed: "removed: ", same: "", note: "" };

/** A unified diff with line numbers. */
export function DiffText({ text, path }: { text: string; path: string }) {
  const hunks = useMemo(() => parseUnified(text), [text]);
  const [all, setAll] = useState(false);
  const total = hunks.reduce((n, hunk) => n + hunk.lines.length, 0);
  let remaining = all ? Infinity : limit;
  return (
    <div className="sb-diff-frame" tabIndex={0} role="region" aria-label={`Diff of ${inertLine(path).text}`}>
      <table className="sb-diff">
        <tbody>
          {hunks.map((hunk, i) => {
            const lines = hunk.lines.slice(0, Math.max(0, remaining));
            remaining -= lines.length;
            return lines.length > 0 ? <HunkRows key={i} hunk={hunk} lines={lines} /> : null;
          })}
        </tbody>
      </table>
      {!all && total > limit && <Button onClick={() => setAll(true)}>Show all {total} lines</Button>}
    </div>
  );
}

function HunkRows({ hunk, lines }: { hunk: Hunk; lines: Line[] }) {
  return (
    <>
      <tr className="sb-hunk">
        <td colSpan={4}>
          <Inert text={hunk.header} />
        </td>
      </tr>
      {lines.map((line, i) => (
        <tr key={i} className={`sb-diff-${line.kind}`}>
          <td className="sb-no">{line.before}</td>
          <td className="sb-no">{line.after}</td>
          <td className="sb-sign">
            <span aria-hidden="true">{signs[line.kind]}</span>
            <span className="sb-hidden">{labels[line.kind]}</span>
          </td>
          <td className="sb-code">
            <Inert text={line.text.replaceAll("\t", "    ")} />
          </td>
        </tr>
      ))}
    </>
  );
}
