import { Tabs } from "radix-ui";
import { useState } from "react";
import { hasEnded, isLive, useSandbox } from "../queries";
import { WhileRunning } from "../running";
import { useFilters } from "../search";
import { Browse } from "./browse";
import { Changes } from "./changes";

/** The files of a sandbox, and its changes. */
export function FilesTab() {
  const sandbox = useSandbox();
  const [filters, set] = useFilters();
  const [unsaved, setUnsaved] = useState(false);
  const view = filters.view ?? (hasEnded(sandbox) && !unsaved ? "changes" : "browse");
  return (
    <Tabs.Root value={view} activationMode="manual" onValueChange={(to) => set({ view: to === "changes" ? "changes" : undefined, path: undefined }, true)} className="sb-tab sb-tab-fill">
      <Tabs.List className="sb-sub" aria-label="Files and changes">
        <Tabs.Trigger value="browse" disabled={hasEnded(sandbox)}>
          Browse
        </Tabs.Trigger>
        <Tabs.Trigger value="changes">Changes</Tabs.Trigger>
      </Tabs.List>
      <Tabs.Content value={view} className="sb-panel">
        {view === "changes" ? (
          <Changes />
        ) : (
          <>
            {unsaved && !isLive(sandbox) && (
              <p className="sb-note" role="alert">
                The sandbox is {sandbox.state}: the edited text cannot be saved now, but it can be copied.
              </p>
            )}
            {/* Unsaved text stays when the sandbox ends. */}
            <WhileRunning sandbox={sandbox} what="Files" anyway={unsaved}>
              <Browse onUnsaved={setUnsaved} />
            </WhileRunning>
          </>
        )}
      </Tabs.Content>
    </Tabs.Root>
  );
}
