import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const name = "crannog-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let chosen: Theme = "system";

function stored(): Theme {
  try {
    const value = localStorage.getItem(name);
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
    if (theme === "system") localStorage.removeItem(name);
    else localStorage.setItem(name, theme);
  } catch {
    // If the choice cannot be stored, it lasts as long as the page.
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
