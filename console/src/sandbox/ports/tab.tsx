import { Button, Empty, Inert, Loading, Problem } from "../../parts";
import { useInside, useSandbox } from "../queries";
import { WhileRunning } from "../running";
import { useFilters } from "../search";

interface Port {
  port: number;
  preview_url?: string;
  command?: string;
}

/** The ports on which programs in a sandbox listen, with a preview. */
export function PortsTab() {
  const sandbox = useSandbox();
  return (
    <WhileRunning sandbox={sandbox} what="Ports">
      <Listening />
    </WhileRunning>
  );
}

function Listening() {
  const [filters, set] = useFilters();
  const list = useInside<{ ports: Port[] | null }>("ports", { every: 5000 });
  if (list.isPending) return <Loading />;
  if (!list.data) return <Problem error={list.error} retry={() => void list.refetch()} />;
  const ports = list.data.ports ?? [];
  const shown = ports.find((one) => one.port === filters.port);
  if (ports.length === 0) return <Empty title="No program listens">A port appears here, with a preview, as soon as a program listens on it.</Empty>;
  return (
    <div className="sb-split">
      <ul className="sb-side sb-picks" aria-label="Ports">
        {ports.map((one) => (
          <li key={one.port} className="sb-port">
            <span className="mono">{one.port}</span>
            {one.command && (
              <span className="quiet mono">
                <Inert text={one.command} />
              </span>
            )}
            <span className="sb-fill" />
            {isPreview(one.preview_url) ? (
              <>
                <Button aria-pressed={one.port === filters.port} onClick={() => set({ port: one.port === filters.port ? undefined : one.port })}>
                  Preview
                </Button>
                <a className="p-button p-button-plain" href={one.preview_url} target="_blank" rel="noopener noreferrer">
                  Open in new tab
                </a>
              </>
            ) : (
              <span className="quiet">This server has no previews.</span>
            )}
          </li>
        ))}
      </ul>
      <div className="sb-main">
        {shown && isPreview(shown.preview_url) ? (
          <section aria-label={`Preview of port ${shown.port}`} className="sb-preview">
            <p className="sb-note">
              A program in the sandbox serves this page and can show anything on it. Enter only data that the program may have. <span className="mono quiet">{new URL(shown.preview_url).host}</span>
            </p>
            <Frame key={shown.preview_url} url={shown.preview_url} port={shown.port} />
          </section>
        ) : (
          <Empty title="Choose a port">Its page has an origin of its own and cannot reach this console.</Empty>
        )}
      </div>
    </div>
  );
}

/**
 * Only a page of another origin is shown in a frame: with the console's own origin, the sandbox's
 * page could act as the signed-in user.
 */
function isPreview(url: string | undefined): url is string {
  if (!url) return false;
  try {
    const address = new URL(url);
    return (address.protocol === "http:" || address.protocol === "https:") && address.origin !== location.origin && address.hostname !== location.hostname;
  } catch {
    return false;
  }
}

function Frame({ url, port }: { url: string; port: number }) {
  return (
    <iframe
      title={`Port ${port}`} src={url} referrerPolicy="no-referrer" loading="lazy"
      // The page keeps its own origin, so that its storage works. It cannot navigate this page, or
      // open windows or dialogs.
      sandbox="allow-scripts allow-forms allow-same-origin" allow=""
    />
  );
}
