// The state of the inbox without its rendering: the order of the requests, which of them keys act
// on, and when a key or a click may decide.

/** The fields of a request that the inbox needs. */
export interface Expiring {
  id: string;
  created_at: string;
  expires_at: string;
}

/**
 * How long a card must have been visible before a decision on it counts. A program in a sandbox
 * chooses when it requests an approval, so it could place a card under a finger that is already
 * moving.
 */
export const GUARD_MS = 400;

export interface Inbox {
  /** Cards from top to bottom. */
  readonly order: readonly string[];
  /** The card that keys act on. */
  readonly focus: string | null;
  /** Time from which the card has had the focus. */
  readonly focusedAt: number;
  /** Time from which each card has been in its current position. */
  readonly placedAt: Readonly<Record<string, number>>;
  /** Time from which the page itself has been visible. */
  readonly shownAt: number;
}

export function emptyInbox(now: number): Inbox {
  return { order: [], focus: null, focusedAt: now, placedAt: {}, shownAt: now };
}

/** byDeadline sorts the request that expires first to the top. */
export function byDeadline<T extends Expiring>(requests: readonly T[]): T[] {
  return requests.toSorted(
    (a, b) =>
      Date.parse(a.expires_at) - Date.parse(b.expires_at) ||
      Date.parse(a.created_at) - Date.parse(b.created_at) ||
      (a.id < b.id ? -1 : a.id > b.id ? 1 : 0),
  );
}

/**
 * reorder updates the order of pending requests. The focus stays with its card when others move. If
 * its card is removed, the focus moves to the card below, or else above.
 */
export function reorder(inbox: Inbox, order: readonly string[], now: number): Inbox {
  const placedAt: Record<string, number> = {};
  order.forEach((id, position) => {
    const before = inbox.placedAt[id];
    placedAt[id] = before !== undefined && inbox.order[position] === id ? before : now;
  });
  if (inbox.focus !== null && order.includes(inbox.focus)) {
    return { ...inbox, order, placedAt };
  }
  return { ...inbox, order, placedAt, focus: nextFocus(inbox, order), focusedAt: now };
}

function nextFocus(inbox: Inbox, order: readonly string[]): string | null {
  const position = inbox.focus === null ? -1 : inbox.order.indexOf(inbox.focus);
  if (position < 0) return order[0] ?? null;
  const below = inbox.order.slice(position + 1).find((id) => order.includes(id));
  if (below !== undefined) return below;
  const above = inbox.order.slice(0, position).findLast((id) => order.includes(id));
  return above ?? order[0] ?? null;
}

/** move moves the focus by a number of cards, and stops at the ends. */
export function move(inbox: Inbox, by: number, now: number): Inbox {
  const position = inbox.focus === null ? -1 : inbox.order.indexOf(inbox.focus);
  const to = Math.min(Math.max(position + by, 0), inbox.order.length - 1);
  return focusOn(inbox, inbox.order[to] ?? null, now);
}

/** focusOn gives the focus to a card. A card that has it keeps its time. */
export function focusOn(inbox: Inbox, id: string | null, now: number): Inbox {
  if (id === inbox.focus || (id !== null && !inbox.order.includes(id))) return inbox;
  return { ...inbox, focus: id, focusedAt: now };
}

/** shown sets the time at which the page became visible, because all of it is new to the viewer. */
export function shown(inbox: Inbox, now: number): Inbox {
  return { ...inbox, shownAt: now };
}

/**
 * keyCounts reports whether a key may decide on the card with the focus. The card must be in view:
 * inView is the time from which it has been, or null.
 */
export function keyCounts(inbox: Inbox, inView: number | null, now: number): boolean {
  if (inbox.focus === null || inView === null) return false;
  return now - Math.max(inbox.focusedAt, inbox.shownAt, inView) >= GUARD_MS;
}

/**
 * clickCounts reports whether a click may decide on a card. A pointer hits a position and not a
 * card, so the card must not have moved lately.
 */
export function clickCounts(inbox: Inbox, id: string, now: number): boolean {
  const placed = inbox.placedAt[id];
  return placed !== undefined && now - Math.max(placed, inbox.shownAt) >= GUARD_MS;
}
