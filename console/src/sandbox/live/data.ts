/**
 * The data of an entry. A sandbox chose or could change it, so the functions below treat a field of
 * an unexpected type as absent, and text is never treated as markup.
 */
export type Data = Readonly<Record<string, unknown>>;

export function asData(value: unknown): Data {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Data) : {};
}

export function text(data: Data, name: string): string {
  const value = data[name];
  return typeof value === "string" ? value : "";
}

export function number(data: Data, name: string): number | undefined {
  const value = data[name];
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

export function texts(data: Data, name: string): string[] {
  const value = data[name];
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : [];
}

/** A command in the syntax of a shell, for people to read. */
export function commandLine(argv: readonly string[]): string {
  const [shell, flag, script] = argv;
  if (argv.length === 3 && shell !== undefined && /(^|\/)(ba|da|z|a)?sh$/.test(shell) && (flag === "-c" || flag === "-lc")) return script ?? "";
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
