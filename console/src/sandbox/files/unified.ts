/** A line of a diff, with its numbers before and after. */
export interface Line {
  kind: "added" | "removed" | "same" | "note";
  before: number | undefined;
  after: number | undefined;
  text: string;
}

export interface Hunk {
  header: string;
  lines: Line[];
}

/** Parses a unified diff of one file. Its header lines are left out. */
export function parseUnified(source: string): Hunk[] {
  const hunks: Hunk[] = [];
  let hunk: Hunk | undefined;
  let before = 0;
  let after = 0;
  let remaining = { before: 0, after: 0 };
  const lines = source.split("\n");
  if (lines.at(-1) === "") lines.pop();
  for (const line of lines) {
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    // Within a hunk, its counts determine which lines are content: a removed line may look like a
    // header.
    if (head && remaining.before <= 0 && remaining.after <= 0) {
      before = Number(head[1]);
      after = Number(head[3]);
      remaining = { before: Number(head[2] ?? 1), after: Number(head[4] ?? 1) };
      hunk = { header: line, lines: [] };
      hunks.push(hunk);
      continue;
    }
    if (!hunk) continue;
    const text = line.slice(1);
    if (line.startsWith("\\")) {
      hunk.lines.push({ kind: "note", before: undefined, after: undefined, text: text.trim() });
    } else if (line.startsWith("+") && remaining.after > 0) {
      hunk.lines.push({ kind: "added", before: undefined, after: after++, text });
      remaining.after--;
    } else if (line.startsWith("-") && remaining.before > 0) {
      hunk.lines.push({ kind: "removed", before: before++, after: undefined, text });
      remaining.before--;
    } else if ((line.startsWith(" ") || line === "") && remaining.before > 0 && remaining.after > 0) {
      hunk.lines.push({ kind: "same", before: before++, after: after++, text });
      remaining.before--;
      remaining.after--;
    }
  }
  return hunks;
}
