/**
 * Rates how well a text matches what was typed: larger is better, 0 is no match. Each typed word
 * must be found. A match at the start of the text is best, then one at the start of a word.
 */
export function score(text: string, typed: string): number {
  const have = text.toLowerCase();
  let sum = 1;
  for (const word of typed.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = have.indexOf(word);
    if (at < 0) return 0;
    sum += at === 0 ? 4 : /[^\p{L}\p{N}]/u.test(have[at - 1] ?? "") ? 3 : 1;
  }
  return sum - have.length / 10_000;
}

/** The best matches, sorted by score, then in their original order. */
export function best<T>(things: readonly T[], typed: string, text: (thing: T) => string, limit: number): T[] {
  return things
    .map((thing, at) => ({ thing, at, points: score(text(thing), typed) }))
    .filter((found) => found.points > 0)
    .sort((a, b) => b.points - a.points || a.at - b.at)
    .slice(0, limit)
    .map((found) => found.thing);
}
