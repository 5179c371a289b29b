// Finds the path of a position in a YAML document by its indentation. This is good enough for
// incomplete documents, which no parser accepts.

export interface Position {
  /** Keys from the top; "[]" is an element of a list. */
  path: string[];
  /** What the user writes at the end of path: a key, or the value of one. */
  at: "key" | "value";
  /** The part of the key or value before the position. */
  typed: string;
  /** The offset of that part in the text. */
  from: number;
}

interface Level {
  indent: number;
  key: string;
}

const keyPattern = /^("[^"]*"|'[^']*'|[A-Za-z_][\w.-]*)\s*:(?:\s+|$)/;

/** positionAt returns the path of an offset. Null means that it is in a comment. */
export function positionAt(text: string, offset: number): Position | null {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  const line = text.slice(start, offset);
  if (/(^|\s)#/.test(line.replace(/"[^"]*"|'[^']*'/g, (s) => "x".repeat(s.length)))) return null;
  const stack = stackAbove(text.slice(0, start).split("\n"));
  return positionIn(line, start, stack);
}

/** stackAbove returns the keys that are open after the lines. */
function stackAbove(lines: readonly string[]): Level[] {
  const stack: Level[] = [];
  for (const raw of lines) {
    if (raw.trim() === "" || raw.trim().startsWith("#") || raw.startsWith("---")) continue;
    walkLine(raw, stack);
  }
  return stack;
}

/** walkLine adds one line to the stack and returns where its value begins. */
function walkLine(raw: string, stack: Level[]): { rest: string; column: number } {
  let column = raw.length - raw.trimStart().length;
  let rest = raw.slice(column);
  let dashed = false;
  while (rest === "-" || rest.startsWith("- ")) {
    close(stack, column, true);
    stack.push({ indent: column, key: "[]" });
    const step = rest.length - rest.slice(1).trimStart().length;
    column += step;
    rest = rest.slice(step);
    dashed = true;
  }
  if (!dashed) close(stack, column, false);
  const key = keyPattern.exec(rest);
  if (key) {
    if (dashed) close(stack, column, false);
    stack.push({ indent: column, key: (key[1] ?? "").replace(/^["']|["']$/g, "") });
    column += key[0].length;
    rest = rest.slice(key[0].length);
  }
  return { rest, column };
}

/**
 * close closes the blocks that a line at this column is outside of. A dash may be directly below
 * its key.
 */
function close(stack: Level[], column: number, dash: boolean): void {
  for (;;) {
    const top = stack.at(-1);
    if (!top) return;
    const inside = top.indent < column || (dash && top.indent === column && top.key !== "[]");
    if (inside) return;
    stack.pop();
  }
}

function positionIn(line: string, start: number, stack: Level[]): Position {
  const blank = line.trim() === "";
  if (blank) {
    close(stack, line.length, false);
    return { path: pathOf(stack), at: "key", typed: "", from: start + line.length };
  }
  const { rest, column } = walkLine(line, stack);
  const open = rest.search(/[[{]/);
  if (open === 0) return positionInFlow(rest, start + column, pathOf(stack));
  const hasKey = stack.at(-1)?.key !== "[]" && stack.at(-1) !== undefined && lineHasKey(line);
  return { path: pathOf(stack), at: hasKey ? "value" : "key", typed: rest.trimStart(), from: start + line.length - rest.trimStart().length };
}

function lineHasKey(line: string): boolean {
  return keyPattern.test(line.trimStart().replace(/^(-\s+)+/, ""));
}

const pathOf = (stack: readonly Level[]) => stack.map((l) => l.key);

/** positionInFlow continues inside brackets and braces. */
function positionInFlow(rest: string, from: number, base: readonly string[]): Position {
  // One entry per open bracket: "{" and the key whose value is being written, or "[".
  const open: { list: boolean; key: string | null }[] = [];
  let word = 0;
  for (let i = 0; i < rest.length; i++) {
    const c = rest[i];
    const top = open.at(-1);
    if (c === "[" || c === "{") open.push({ list: c === "[", key: null });
    else if (c === "]" || c === "}") open.pop();
    else if (c === "," && top) top.key = null;
    else if (c === ":" && top && !top.list && (rest[i + 1] ?? " ") === " ") top.key = rest.slice(word, i).trim();
    else continue;
    word = i + 1;
  }
  const path = [...base];
  for (const level of open) {
    if (level.list) path.push("[]");
    else if (level.key !== null) path.push(level.key);
  }
  const typed = rest.slice(word).trimStart();
  const top = open.at(-1);
  return { path, at: top && !top.list && top.key === null ? "key" : "value", typed, from: from + rest.length - typed.length };
}
