/** A value in a document, in the form of YAML that the server writes. */
export type Value = string | Value[] | { [name: string]: Value };

export type Fields = { [name: string]: Value };

interface Line {
  indent: number;
  text: string;
}

/**
 * Parses YAML as our server writes it: nested names and lists, one per line. It is no general
 * parser of YAML. Anything else is refused, so that it is never understood differently from what
 * the server meant.
 */
export function outline(source: string): Fields {
  const lines = source.split("\n").filter((line) => line.trim() !== "").map((line) => ({ indent: line.length - line.trimStart().length, text: line.trim() }));
  const at = { n: 0 };
  const value = block(lines, at, 0);
  if (lines.length === 0 || at.n < lines.length || typeof value === "string" || Array.isArray(value)) throw new Error("The document is not in the form that the server writes.");
  return value;
}

function block(lines: Line[], at: { n: number }, indent: number): Value {
  return lines[at.n]?.text.startsWith("- ") || lines[at.n]?.text === "-" ? list(lines, at, indent) : fields(lines, at, indent);
}

function list(lines: Line[], at: { n: number }, indent: number): Value[] {
  const out: Value[] = [];
  for (let line = lines[at.n]; line && line.indent === indent && line.text.startsWith("- "); line = lines[at.n]) {
    const rest = line.text.slice(2);
    if (rest.startsWith("- ")) throw new Error("A list directly in a list is not supported.");
    if (splitPair(rest)) {
      lines[at.n] = { indent: indent + 2, text: rest };
      out.push(fields(lines, at, indent + 2));
    } else {
      out.push(scalar(rest));
      at.n++;
    }
  }
  return out;
}

function fields(lines: Line[], at: { n: number }, indent: number): Fields {
  const out: Fields = Object.create(null) as Fields;
  for (let line = lines[at.n]; line && line.indent === indent && !line.text.startsWith("- "); line = lines[at.n]) {
    const pair = splitPair(line.text);
    if (!pair) throw new Error(`Line ${at.n + 1} is not supported.`);
    const [name, rest] = pair;
    at.n++;
    const next = lines[at.n];
    if (rest !== "") out[name] = scalar(rest);
    else if (next && next.indent > indent) out[name] = block(lines, at, next.indent);
    else throw new Error(`${name} has no value.`);
  }
  return out;
}

/** Splits "name: rest". */
function splitPair(text: string): [name: string, rest: string] | undefined {
  const found = /^([A-Za-z0-9_.-]+|"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'):(?: (.*))?$/.exec(text);
  return found ? [scalar(found[1] ?? ""), found[2] ?? ""] : undefined;
}

function scalar(text: string): string {
  if (text.startsWith('"')) {
    const value: unknown = JSON.parse(text);
    if (typeof value === "string") return value;
  }
  if (text.startsWith("'")) {
    if (!/^'(?:[^']|'')*'$/.test(text)) throw new Error("A quoted text does not end.");
    return text.slice(1, -1).replaceAll("''", "'");
  }
  if (text === "[]" || text === "{}" || /^[[{|>&*!%@`]/.test(text)) throw new Error(`${text.slice(0, 20)} is not supported.`);
  return text;
}

export function asFields(value: Value | undefined): Fields {
  return typeof value === "object" && !Array.isArray(value) ? value : {};
}

export function asList(value: Value | undefined): Value[] {
  return Array.isArray(value) ? value : [];
}

export interface Binding {
  name: string;
  host: string;
  how: string;
  paths: string[];
}

/** The secrets that a policy sets on requests: names, never values. */
export function bindings(source: string): Binding[] {
  const bind = asList(asFields(outline(source)["secrets"])["bind"]);
  return bind.map(asFields).map((one) => {
    const textOf = (name: string) => (typeof one[name] === "string" ? one[name] : "");
    const port = textOf("port");
    return {
      name: textOf("name"), host: port && port !== "443" ? `${textOf("host")}:${port}` : textOf("host"),
      how: textOf("basic") ? "Basic credential" : textOf("header") || "Authorization",
      paths: asList(one["paths"]).filter((path) => typeof path === "string"),
    };
  });
}
