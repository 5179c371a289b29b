const shape = /^#token=([A-Za-z0-9_-]{16,256})$/;

/**
 * The one-time token of the address. It is removed from the address at once, so that it is in no
 * history, no bookmark, and nothing that is shown on a screen.
 */
export function takeToken(place: Location = location, past: History = history): string | null {
  if (!place.hash.startsWith("#token=")) return null;
  const token = shape.exec(place.hash)?.[1] ?? null;
  past.replaceState(past.state, "", place.pathname + place.search);
  return token;
}
