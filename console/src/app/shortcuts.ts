import { useEffect, useRef } from "react";

export interface Shortcut {
  /** The text in the help; empty for a second key of the same action. */
  label: string;
  run: (event: KeyboardEvent) => void;
}

/** Keys as they are written in help: "a", "?", "g f", "mod+k". */
export type Shortcuts = Record<string, Shortcut>;

// The longest time between the two keys of "g f", in milliseconds.
const maxInterval = 1_200;

const handlers: Shortcuts[] = [];
let pressed = "";
let since = 0;

/** Returns the name of the key in an event, with mod for Ctrl and Command. */
export function keyName(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "shiftKey">): string {
  if (event.altKey) return "";
  const mod = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 && (mod || !event.shiftKey) ? event.key.toLowerCase() : event.key;
  return mod ? `mod+${key}` : key;
}

/** Reports whether the focused element handles keys itself, so that the page must not. */
export function handlesKeys(target: EventTarget | null): boolean {
  if (!(target instanceof Element)) return false;
  return target.closest("input, textarea, select, [contenteditable='true'], [role='textbox'], [data-keys='own'], .xterm, [role='menu']") !== null;
}

/** Passes a key to its newest handler; reports whether there is one. */
export function press(event: KeyboardEvent, now = Date.now()): boolean {
  const key = keyName(event);
  if (key === "" || event.defaultPrevented || event.isComposing) return false;
  const typing = handlesKeys(event.target);
  // The palette opens everywhere except in a terminal, where Ctrl-K belongs to the shell.
  if (typing && !(key.startsWith("mod+") && !(event.target as Element).closest(".xterm"))) return false;
  const modal = document.querySelector("[role='dialog'], [role='alertdialog']") !== null;
  const pair = now - since < maxInterval ? `${pressed} ${key}` : "";
  [pressed, since] = [key, now];
  for (const name of [pair, key]) {
    if (name === "") continue;
    for (let i = handlers.length - 1; i >= 0; i--) {
      const shortcut = handlers[i]?.[name];
      if (!shortcut || (modal && !key.startsWith("mod+"))) continue;
      pressed = "";
      event.preventDefault();
      shortcut.run(event);
      return true;
    }
  }
  return false;
}

/** Adds shortcuts above the existing ones, until the returned function is called. */
export function addShortcuts(shortcuts: Shortcuts): () => void {
  handlers.push(shortcuts);
  return () => {
    const at = handlers.indexOf(shortcuts);
    if (at >= 0) handlers.splice(at, 1);
  };
}

/** All shortcuts that are available now, the innermost first, for the help. */
export function listShortcuts(): { keys: string; label: string }[] {
  const all = new Map<string, string>();
  for (const handler of [...handlers].reverse()) {
    for (const [keys, { label }] of Object.entries(handler)) if (!all.has(keys)) all.set(keys, label);
  }
  return [...all].filter(([, label]) => label !== "").map(([keys, label]) => ({ keys, label }));
}

/** Registers shortcuts while the component is mounted; their actions may change. */
export function useShortcuts(shortcuts: Shortcuts) {
  const latest = useRef(shortcuts);
  useEffect(() => {
    latest.current = shortcuts;
  });
  const names = Object.keys(shortcuts).join("\n");
  useEffect(() => {
    const handler: Shortcuts = {};
    for (const name of names === "" ? [] : names.split("\n")) {
      handler[name] = {
        get label() {
          return latest.current[name]?.label ?? "";
        },
        run: (event) => latest.current[name]?.run(event),
      };
    }
    return addShortcuts(handler);
  }, [names]);
}

/** Listens to the whole page. It is used once, in the frame. */
export function useKeyboard() {
  useEffect(() => {
    const listen = (event: KeyboardEvent) => void press(event);
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, []);
}
