/** Text that a sandbox chose, without characters that a reader cannot see. */
export interface InertText {
  text: string;
  /** Whether something was removed. */
  changed: boolean;
}

// What needs no look: nearly all that there is.
const plain = /^[\x20-\x7e\n\t]*$/;

/* eslint-disable no-control-regex -- they are what this file is about */
// Strings that a terminal swallows whole: OSC 8 hides where a link goes, OSC 52
// writes the clipboard. The payload has no other introducer in it, so that many
// which never end cost no more than their length.
const controlString =
  /(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)/g;
// Colours, movements of the cursor, erased lines.
const controlSequence = /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]/g;
const escapePair = /\x1b[ -/]*[0-~]?/g;
const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
/* eslint-enable no-control-regex */

// Line ends that only some programs know, and with which a line can be forged.
const lineEnds = /\r\n?|[\u0085\u2028\u2029\x0b\x0c]/g;

// Marks that turn the order of what is read: "exe.txt" for "txt.exe".
const bidi = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// Characters of no width, with which two names look the same: soft hyphen,
// joiners, fillers, variation selectors, tags, annotation and invisible
// operators.
const invisible =
  /[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

// A pile of accents covers the lines above and below it.
const pile = /(\p{M}{3})\p{M}+/gu;

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
    .replace(pile, "$1");
  return { text: clean, changed: clean !== text.replace(/\r\n/g, "\n") };
}

/** The same on one line, for names and cells of tables. */
export function inertLine(text: string): InertText {
  const clean = inert(text);
  const line = clean.text.replace(/[\n\t]+/g, " ");
  return { text: line, changed: clean.changed || line !== clean.text };
}
