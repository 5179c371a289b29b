import { useSyncExternalStore } from "react";

const storageKey = "crannog-notify";
const listeners = new Set<() => void>();

export type NotifyState = "on" | "off" | "refused" | "impossible";

function switchedOn(): boolean {
  try {
    return localStorage.getItem(storageKey) === "on";
  } catch {
    return false;
  }
}

function state(): NotifyState {
  if (!("Notification" in window)) return "impossible";
  if (Notification.permission === "denied") return "refused";
  return switchedOn() && Notification.permission === "granted" ? "on" : "off";
}

/**
 * Reports whether to notify about a request: notifications are switched on and permitted, and the
 * page is not visible.
 */
export function canNotify(): boolean {
  return state() === "on" && (document.hidden || !document.hasFocus());
}

/** Shows a notification if the browser can: on phones only a service worker could. */
export function notify(title: string, options: NotificationOptions): Notification | null {
  try {
    return new Notification(title, options);
  } catch {
    return null;
  }
}

async function setEnabled(on: boolean) {
  const granted = on ? (await Notification.requestPermission()) === "granted" : false;
  try {
    if (granted) localStorage.setItem(storageKey, "on");
    else localStorage.removeItem(storageKey);
  } catch {
    // Without storage, the choice lasts until the page is reloaded.
  }
  for (const listener of listeners) listener();
}

/**
 * Whether desktop notifications are on, and how to switch them. The browser asks for permission
 * when they are switched on.
 */
export function useNotify(): [NotifyState, (on: boolean) => void] {
  const now = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    state,
  );
  return [now, (on) => void setEnabled(on)];
}
