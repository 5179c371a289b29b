import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { lazy, Suspense, useEffect } from "react";
import { Inert, Loading, Page, Problem, StateBadge, TabBar } from "../parts";
import { Actions } from "./actions";
import { Facts } from "./facts";
import { type Sandbox, SandboxContext, sandboxQuery } from "./queries";
import { type TabID, tabs } from "./search";
import "./sandbox.css";
import "./lines.css";
import "./panes.css";
import "./files/files.css";
import "./narrow.css";

const labels: Record<TabID, string> = {
  live: "Live", terminal: "Terminal", files: "Files", processes: "Processes", network: "Network",
  ports: "Ports", snapshots: "Snapshots", policy: "Policy", secrets: "Secrets", record: "Audit log",
};

const pages: Record<TabID, ReturnType<typeof lazy>> = {
  live: lazy(async () => ({ default: (await import("./live/tab")).LiveTab })),
  terminal: lazy(async () => ({ default: (await import("./terminal/tab")).TerminalTab })),
  files: lazy(async () => ({ default: (await import("./files/tab")).FilesTab })),
  processes: lazy(async () => ({ default: (await import("./processes/tab")).ProcessesTab })),
  network: lazy(async () => ({ default: (await import("./network/tab")).NetworkTab })),
  ports: lazy(async () => ({ default: (await import("./ports/tab")).PortsTab })),
  snapshots: lazy(async () => ({ default: (await import("./snapshots/tab")).SnapshotsTab })),
  policy: lazy(async () => ({ default: (await import("./policy/tab")).PolicyTab })),
  secrets: lazy(async () => ({ default: (await import("./secrets/tab")).SecretsTab })),
  record: lazy(async () => ({ default: (await import("./record/tab")).RecordTab })),
};

// These tabs have lists that scroll by themselves, and fill the window.
const fillsWindow: ReadonlySet<TabID> = new Set(["live", "terminal", "files", "network", "ports", "record"]);

/** The page of one sandbox. */
export function SandboxPage() {
  const { id = "", tab } = useParams({ strict: false }) as { id?: string; tab?: string };
  const current = tabs.find((one) => one === tab) ?? "live";
  const query = useQuery(sandboxQuery(id));
  if (query.isPending) {
    return (
      <Page title={id}>
        <Loading />
      </Page>
    );
  }
  if (!query.data) {
    return (
      <Page title={id}>
        <Problem error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  }
  return <Loaded key={query.data.id} sandbox={query.data} tab={current} refName={id} stale={query.isError ? query.error : undefined} />;
}

function Loaded({ sandbox, tab, refName, stale }: { sandbox: Sandbox; tab: TabID; refName: string; stale: unknown }) {
  const Tab = pages[tab];
  const name = sandbox.name || sandbox.id;
  useEffect(() => {
    // On a narrow window the tabs scroll sideways, so that the current one is visible.
    document.querySelector('.p-tabs [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [tab]);
  return (
    <SandboxContext value={sandbox}>
      <Page
        title={name}
        heading={
          <>
            <Inert text={name} />
            <StateBadge state={sandbox.state} />
          </>
        }
        actions={<Actions />}
      >
        {stale !== undefined && <Problem error={stale} />}
        <Facts />
        <TabBar
          label="About this sandbox"
          current={tab}
          tabs={tabs.map((one) => ({ id: one, label: labels[one], to: `/s/${encodeURIComponent(refName)}/${one}` }))}
        />
        <div className={fillsWindow.has(tab) ? "sb-tab sb-tab-fill" : "sb-tab"}>
          <Suspense fallback={<Loading />}>
            <Tab />
          </Suspense>
        </div>
      </Page>
    </SandboxContext>
  );
}
