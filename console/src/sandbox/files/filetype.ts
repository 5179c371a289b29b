/** The most bytes of a file that are shown. */
export const maxShown = 1 << 20;

/** The most bytes of an image that are shown. */
export const maxImage = 8 << 20;

/**
 * How a file is shown. Text is whole if nothing of the file is left out, and exact if the file is
 * valid UTF-8.
 */
export type Shown =
  | { as: "text"; text: string; whole: boolean; exact: boolean }
  | { as: "image"; type: string }
  | { as: "bytes" };

const images: readonly [type: string, magic: readonly number[]][] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
];

/**
 * Decides from a file's bytes how it is shown, because the sandbox chooses its name. Only images of
 * four kinds are drawn. SVG and HTML can contain scripts, so they are shown as text.
 */
export function shownAs(bytes: Uint8Array): Shown {
  const type = imageType(bytes);
  if (type) return bytes.length <= maxImage ? { as: "image", type } : { as: "bytes" };
  if (bytes.subarray(0, 8192).includes(0)) return { as: "bytes" };
  const part = bytes.subarray(0, maxShown);
  const whole = part.length === bytes.length;
  try {
    return { as: "text", text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(part, { stream: !whole }), whole, exact: true };
  } catch {
    return { as: "text", text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(part), whole, exact: false };
  }
}

function imageType(bytes: Uint8Array): string | undefined {
  for (const [type, magic] of images) if (magic.every((byte, i) => bytes[i] === byte)) return type;
  const ascii = (from: number) => String.fromCharCode(...bytes.subarray(from, from + 4));
  return ascii(0) === "RIFF" && ascii(8) === "WEBP" ? "image/webp" : undefined;
}

/** Permission bits as ls shows them. */
export function modeText(mode: string | number | undefined): string {
  if (mode === undefined) return "";
  const bits = typeof mode === "number" ? mode : /^0?[0-7]{1,6}$/.test(mode) ? parseInt(mode, 8) : NaN;
  if (Number.isNaN(bits)) return String(mode);
  return [6, 3, 0].map((at) => ["r", "w", "x"].map((letter, i) => ((bits >> (at + 2 - i)) & 1 ? letter : "-")).join("")).join("");
}
