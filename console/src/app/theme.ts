import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const storageKey = "crannog-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let chosen: Theme = "system";

function stored(): Theme {
  try {
    const value = localStorage.getItem(storageKey);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

/** The effective theme: the choice, or the system's. */
export function resolved(theme: Theme = chosen): "light" | "dark" {
  if (theme !== "system") return theme;
  return dark.matches ? "dark" : "light";
}

function apply() {
  document.documentElement.dataset["theme"] = resolved();
  for (const listener of listeners) listener();
}

/** Applies the theme before anything is drawn. */
export function beginTheme() {
  chosen = stored();
  dark.addEventListener("change", apply);
  apply();
}

export function setTheme(theme: Theme) {
  chosen = theme;
  try {
    if (theme === "system") localStorage.removeItem(storageKey);
    else localStorage.setItem(storageKey, theme);
  } catch {
    // Without storage, the choice lasts until the page is reloaded.
  }
  apply();
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * The choice, and the effective theme. Editors and terminals update their colours when it changes.
 */
export function useTheme(): { theme: Theme; shown: "light" | "dark" } {
  const theme = useSyncExternalStore(subscribe, () => chosen);
  const shown = useSyncExternalStore(subscribe, () => resolved());
  return { theme, shown };
}
