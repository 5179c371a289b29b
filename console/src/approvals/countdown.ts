// The remaining time of an approval request, in words and in urgency.

export type Urgency = "calm" | "soon" | "now" | "over";

export interface Left {
  text: string;
  urgency: Urgency;
}

const MINUTE = 60_000;

/** leftOf returns the remaining time of a request. */
export function leftOf(expiresAt: string, now: number): Left {
  const ms = Date.parse(expiresAt) - now;
  if (!(ms > 0)) return { text: "expired", urgency: "over" };
  const seconds = Math.ceil(ms / 1000);
  if (ms <= 10 * MINUTE) {
    const text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
    return { text, urgency: ms <= MINUTE ? "now" : ms <= 5 * MINUTE ? "soon" : "calm" };
  }
  const minutes = Math.floor(ms / MINUTE);
  if (minutes < 120) return { text: `${minutes} min left`, urgency: "calm" };
  return { text: `${Math.floor(minutes / 60)} h left`, urgency: "calm" };
}
