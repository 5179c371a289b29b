/** Formats numbers and times, in one place, so that all pages agree. */

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A size, with three significant digits. */
export function bytes(n: number): string {
  if (!Number.isFinite(n) || n < 0) return "–";
  let unit = 0;
  let size = n;
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1024;
    unit++;
  }
  return `${unit === 0 ? Math.round(size) : threeDigits(size)} ${units[unit] ?? ""}`;
}

function threeDigits(n: number): string {
  if (n >= 99.95) return n.toFixed(0);
  if (n >= 9.995) return n.toFixed(1);
  return n.toFixed(n < 0.005 ? 0 : 2);
}

/** A length of time, in its two largest units. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return twoUnits(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return twoUnits(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return twoUnits(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

function twoUnits(a: number, unit: string, b: number, small: string): string {
  return b === 0 ? `${a} ${unit}` : `${a} ${unit} ${b} ${small}`;
}

/** How long ago, or how soon, in one unit: "4 min ago", "in 2 h". */
export function relative(at: number, now: number): string {
  const ms = Math.abs(now - at);
  if (ms < 5_000) return "now";
  const text = coarse(ms);
  return at <= now ? `${text} ago` : `in ${text}`;
}

/** A length of time in its largest unit. */
export function coarse(ms: number): string {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** A countdown: "4:05", "1:00:00". */
export function countdown(ms: number): string {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const [h, m, rest] = [Math.floor(s / 3600), Math.floor((s % 3600) / 60), s % 60];
  const pad = (n: number) => String(n).padStart(2, "0");
  return h > 0 ? `${h}:${pad(m)}:${pad(rest)}` : `${m}:${pad(rest)}`;
}

/** A fraction of one core as per cent. */
export function cores(fraction: number): string {
  if (!Number.isFinite(fraction)) return "–";
  const percent = fraction * 100;
  return `${percent < 9.95 && percent > 0 ? percent.toFixed(1) : Math.round(percent)} %`;
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** Date and time in the reader's time zone; only the time if it is today. */
export function localTime(at: Date, now = new Date()): string {
  if (Number.isNaN(at.getTime())) return "–";
  return at.toDateString() === now.toDateString() ? clock.format(at) : local.format(at);
}

/** Date and time in UTC, to the second. */
export function utc(at: Date): string {
  if (Number.isNaN(at.getTime())) return "–";
  return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
