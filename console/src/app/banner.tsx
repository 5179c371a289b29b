import { useState, useSyncExternalStore } from "react";
import type { Session } from "../api/console";
import { live, useLiveState } from "../live";
import { Button } from "../parts/button";
import { useNow } from "../parts/clock";
import { coarse } from "../parts/format";
import { Icon } from "../parts/icon";

/** How long before the session's end the warning appears. */
const warningPeriod = 10 * 60_000;

/** Messages for all pages: no server, another version, the session ends soon. */
export function Banner({ session }: { session: Session }) {
  const state = useLiveState();
  const now = useNow(10_000);
  const [hidden, setHidden] = useState(false);
  const version = useSyncExternalStore(live.onReturn.on, () => live.hello?.version);
  const left = Date.parse(session.expires_at) - now;

  if (state === "offline") {
    return (
      <Line tone="bad">
        <span>The server cannot be reached. The data on the page is old. It updates by itself when the server is back.</span>
        <Button onClick={() => live.reconnectNow()}>Try now</Button>
      </Line>
    );
  }
  if (version !== undefined && version !== session.version) {
    return (
      <Line tone="info">
        <span>The server was updated to {version}.</span>
        <Button onClick={() => location.reload()}>Load again</Button>
      </Line>
    );
  }
  if (left < warningPeriod && !hidden) {
    return (
      <Line tone="warn">
        <span>{left > 0 ? `Your session ends in ${coarse(left)}.` : "Your session has ended."} To create a new link, run: crannog console</span>
        <Button onClick={() => setHidden(true)}>Hide</Button>
      </Line>
    );
  }
  return null;
}

function Line({ tone, children }: { tone: "bad" | "info" | "warn"; children: React.ReactNode }) {
  return (
    <div className={`app-banner p-tone-${tone}`} role="status">
      <Icon name={tone === "info" ? "info" : "alert"} />
      {children}
    </div>
  );
}
