import { type ErrorComponentProps, Link } from "@tanstack/react-router";
import { Empty, Page, Problem } from "../parts/page";

/** Shown for a page with an error; the frame around it still works. */
export function Failed({ error, reset }: ErrorComponentProps) {
  // If a chunk is missing, the server was updated while the page was open.
  const updated = /dynamically imported module|importing a module script/i.test(error instanceof Error ? error.message : String(error));
  return (
    <Page title="Something went wrong">
      {updated ? (
        <Empty title="This page belongs to another version">
          <p>The server was updated. Load the page again.</p>
          <button type="button" className="p-button p-button-primary" onClick={() => location.reload()}>
            Load again
          </button>
        </Empty>
      ) : (
        <Problem error={error} retry={reset} />
      )}
    </Page>
  );
}

/** Shown for an unknown address. */
export function NotFound() {
  return (
    <Page title="Not found">
      <Empty title="There is nothing at this address">
        <Link to="/">To the fleet</Link>
      </Empty>
    </Page>
  );
}
