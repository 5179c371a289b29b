const tokenPattern = /^#token=([A-Za-z0-9_-]{16,256})$/;

/**
 * Returns the one-time token of the URL, or null. The token is removed from the URL at once, so
 * that it appears in no history, bookmark or picture of the screen.
 */
export function takeToken(place: Location = location, past: History = history): string | null {
  if (!place.hash.startsWith("#token=")) return null;
  const token = tokenPattern.exec(place.hash)?.[1] ?? null;
  past.replaceState(past.state, "", place.pathname + place.search);
  return token;
}
