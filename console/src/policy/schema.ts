// Reads the JSON schema of policies: which fields are valid at a path, which values a field takes,
// and what it means.

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  type?: string | string[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  description?: string;
  default?: unknown;
  examples?: unknown[];
  oneOf?: Schema[];
  anyOf?: Schema[];
  allOf?: Schema[];
  required?: string[];
}

/** resolve follows references. A cycle, or a missing target, resolves to an empty schema. */
export function resolve(root: Schema, s: Schema | undefined): Schema {
  let at = s ?? {};
  for (let n = 0; n < 16 && at.$ref !== undefined; n++) {
    const name = at.$ref.replace(/^#\/(\$defs|definitions)\//, "");
    const next = at.$ref === "#" ? root : (root.$defs?.[name] ?? root.definitions?.[name]);
    if (!next) return {};
    // Keywords beside a reference describe this use of the target in more detail.
    const { $ref: _, ...description } = at;
    at = { ...next, ...description };
  }
  return at.$ref === undefined ? at : {};
}

function variants(root: Schema, s: Schema): Schema[] {
  const more = [...(s.oneOf ?? []), ...(s.anyOf ?? []), ...(s.allOf ?? [])].map((v) => resolve(root, v));
  return [s, ...more];
}

/** at returns the schema of a path such as network, hosts, [], host. */
export function at(root: Schema, path: readonly string[]): Schema | null {
  let here: Schema[] = variants(root, resolve(root, root));
  for (const step of path) {
    const next: Schema[] = [];
    for (const s of here) {
      const child = step === "[]" ? s.items : s.properties?.[step];
      if (child) next.push(...variants(root, resolve(root, child)));
    }
    if (next.length === 0) return null;
    here = next;
  }
  return merged(here);
}

function merged(all: readonly Schema[]): Schema {
  const out: Schema = {};
  for (const s of all) {
    if (s.description !== undefined) out.description ??= s.description;
    if (s.type !== undefined) out.type ??= s.type;
    if (s.items !== undefined) out.items ??= s.items;
    if (s.default !== undefined) out.default ??= s.default;
    if (s.properties) out.properties = { ...out.properties, ...s.properties };
    if (s.enum) out.enum = [...(out.enum ?? []), ...s.enum];
    if (s.const !== undefined) out.enum = [...(out.enum ?? []), s.const];
    if (s.examples) out.examples = [...(out.examples ?? []), ...s.examples];
  }
  return out;
}

export interface Field {
  name: string;
  doc: string;
  /** How a value starts: with a block below, as a list, or on the same line. */
  shape: "fields" | "list" | "value";
}

/** fieldsAt returns the fields that are valid at a path. */
export function fieldsAt(root: Schema, path: readonly string[]): Field[] {
  const here = at(root, path);
  return Object.entries(here?.properties ?? {}).map(([name, raw]) => {
    const s = at(root, [...path, name]) ?? resolve(root, raw);
    return { name, doc: s.description ?? "", shape: s.properties ? "fields" : s.items?.$ref || s.items?.properties ? "list" : "value" };
  });
}

/** valuesAt returns the known values of a field. */
export function valuesAt(root: Schema, path: readonly string[]): string[] {
  const s = at(root, path);
  if (!s) return [];
  if (s.enum) return [...new Set(s.enum.map(String))];
  if (s.type === "boolean") return ["true", "false"];
  // A list on one line has the values of its elements.
  const inside = s.items ? at(root, [...path, "[]"]) : null;
  if (inside?.enum) return [...new Set(inside.enum.map(String))];
  return (s.examples ?? []).map(String);
}
