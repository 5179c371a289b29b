/** Text that a sandbox chose, without characters that a reader cannot see. */
export interface InertText {
  text: string;
  /** Whether something was removed. */
  changed: boolean;
}

// Text that needs no changes, which is nearly all text.
const plain = /^[\x20-\x7e\n\t]*$/;

/* eslint-disable no-control-regex -- they are what this file is about */
// Strings that a terminal interprets without showing them: OSC 8 hides where a link leads, OSC 52
// writes the clipboard. The payload must not contain another introducer, so that many unterminated
// strings cost no more than their length.
const controlString =
  /(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)/g;
// Colours, cursor movements, erased lines.
const controlSequence = /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]/g;
const escapePair = /\x1b[ -/]*[0-~]?/g;
const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
/* eslint-enable no-control-regex */

// Line ends that only some programs treat as such, with which a line can be forged.
const lineEnds = /\r\n?|[\u0085\u2028\u2029\x0b\x0c]/g;

// Marks that change the reading order: "exe.txt" for "txt.exe".
const bidi = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// Characters without width, with which two names can look the same: soft hyphen, joiners, fillers,
// variation selectors, tags, annotation and invisible operators.
const invisible =
  /[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

// Many combining accents on one letter cover the lines above and below.
const stackedMarks = /(\p{M}{3})\p{M}+/gu;

/** Removes characters that could deceive a reader; lines and tabs stay. */
export function inert(text: string): InertText {
  if (plain.test(text)) return { text, changed: false };
  const ends = text.replace(lineEnds, "\n");
  const clean = ends
    .replace(controlString, "")
    .replace(controlSequence, "")
    .replace(escapePair, "")
    .replace(controls, "")
    .toWellFormed()
    .replace(bidi, "")
    .replace(invisible, "")
    .replace(stackedMarks, "$1");
  return { text: clean, changed: clean !== text.replace(/\r\n/g, "\n") };
}

/** Removes deceptive characters and line breaks, for names and cells of tables. */
export function inertLine(text: string): InertText {
  const clean = inert(text);
  const line = clean.text.replace(/[\n\t]+/g, " ");
  return { text: line, changed: clean.changed || line !== clean.text };
}
