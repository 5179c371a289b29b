import { Kbd } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { listShortcuts } from "./shortcuts";

// Shortcuts of parts of a page, such as a table. They are not registered for the whole page.
const partShortcuts = [
  { keys: "j", label: "Next row" },
  { keys: "k", label: "Previous row" },
  { keys: "Enter", label: "Open the row" },
  { keys: "Ctrl+Shift+F6", label: "Leave the terminal" },
  { keys: "Esc", label: "Close the dialog on top" },
];

/** The shortcuts that are available now. */
export function Help({ open, onOpenChange }: { open: boolean; onOpenChange: (open: boolean) => void }) {
  const here = listShortcuts();
  const all = [...here, ...partShortcuts.filter((e) => !here.some((h) => h.keys === e.keys))];
  return (
    <Dialog title="Keyboard shortcuts" open={open} onOpenChange={onOpenChange} wide>
      <dl className="app-help">
        {all.map(({ keys, label }) => (
          <div key={keys}>
            <dt>
              {keys.split(" ").map((key) => (
                <Kbd key={key}>{key.startsWith("mod+") ? `Ctrl+${key.slice(4).toUpperCase()}` : key}</Kbd>
              ))}
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
