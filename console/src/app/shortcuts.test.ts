import { afterEach, describe, expect, it, vi } from "vitest";
import { type Shortcuts, addShortcuts, keyName, listShortcuts, press } from "./shortcuts";

function key(name: string, init: KeyboardEventInit = {}, target: Element = document.body): KeyboardEvent {
  const event = new KeyboardEvent("keydown", { key: name, cancelable: true, bubbles: true, ...init });
  target.dispatchEvent(event);
  return event;
}

describe("shortcuts", () => {
  const undo: (() => void)[] = [];
  const add = (shortcuts: Shortcuts) => {
    const remove = addShortcuts(shortcuts);
    undo.push(remove);
    return remove;
  };
  afterEach(() => {
    for (const remove of undo.splice(0)) remove();
    document.body.replaceChildren();
    press(key("Escape"), 0);
  });
  const child = (html: string): Element => {
    document.body.innerHTML = html;
    const found = document.querySelector("#x");
    if (!found) throw new Error("no element");
    return found;
  };

  it("names keys", () => {
    const none = { ctrlKey: false, metaKey: false, altKey: false, shiftKey: false };
    expect(keyName({ ...none, key: "K", ctrlKey: true })).toBe("mod+k");
    expect(keyName({ ...none, key: "k", metaKey: true })).toBe("mod+k");
    expect(keyName({ ...none, key: "?", shiftKey: true })).toBe("?");
    expect(keyName({ ...none, key: "A", shiftKey: true })).toBe("A");
    // Caps lock is not Shift.
    expect(keyName({ ...none, key: "A" })).toBe("a");
    expect(keyName({ ...none, key: "l", altKey: true })).toBe("");
  });

  it("recognizes pairs of keys within the time limit", () => {
    const run = vi.fn();
    add({ "g f": { label: "fleet", run } });
    press(key("g"), 1_000);
    expect(press(key("f"), 1_500)).toBe(true);
    press(key("g"), 5_000);
    expect(press(key("f"), 9_000)).toBe(false);
    press(key("g"), 10_000);
    press(key("x"), 10_100);
    expect(press(key("f"), 10_200)).toBe(false);
    expect(run).toHaveBeenCalledTimes(1);
  });

  it("gives a key to the newest handler, and to the previous one after that is removed", () => {
    const [outer, inner] = [vi.fn(), vi.fn()];
    add({ a: { label: "outer", run: outer }, b: { label: "b", run: outer } });
    const remove = add({ a: { label: "inner", run: inner } });
    expect(listShortcuts()).toEqual([
      { keys: "a", label: "inner" },
      { keys: "b", label: "b" },
    ]);
    press(key("a"), 1_000);
    remove();
    press(key("a"), 3_000);
    expect([inner.mock.calls.length, outer.mock.calls.length]).toEqual([1, 1]);
  });

  it.each([
    '<input id="x">',
    '<textarea id="x"></textarea>',
    '<select id="x"></select>',
    '<div contenteditable="true"><b id="x">x</b></div>',
    '<div role="textbox" id="x"></div>',
    '<div class="xterm"><span id="x"></span></div>',
    '<div data-keys="own"><span id="x"></span></div>',
  ])("leaves keys to %s", (html) => {
    const run = vi.fn();
    add({ a: { label: "approve", run } });
    expect(press(key("a", {}, child(html)), 1_000)).toBe(false);
    expect(run).not.toHaveBeenCalled();
    expect(press(key("a"), 2_000)).toBe(true);
  });

  it("opens the palette from a field, but not from a terminal", () => {
    const run = vi.fn();
    add({ "mod+k": { label: "palette", run } });
    expect(press(key("k", { ctrlKey: true }, child('<input id="x">')), 1_000)).toBe(true);
    expect(press(key("k", { ctrlKey: true }, child('<div class="xterm"><textarea id="x"></textarea></div>')), 2_000)).toBe(false);
  });

  it("runs no shortcut behind a dialog", () => {
    const run = vi.fn();
    add({ a: { label: "approve", run } });
    document.body.innerHTML = '<div role="alertdialog"></div>';
    expect(press(key("a"), 1_000)).toBe(false);
    expect(run).not.toHaveBeenCalled();
  });

  it("ignores a key that was already handled or belongs to a composition", () => {
    add({ a: { label: "approve", run: vi.fn() } });
    const used = key("a");
    used.preventDefault();
    expect(press(used, 1_000)).toBe(false);
    expect(press(key("a", { isComposing: true }), 2_000)).toBe(false);
  });
});
