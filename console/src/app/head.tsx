import type { Session } from "../api/console";
import { signOut } from "../api/session";
import { useLivePaused, useLiveState } from "../live";
import { IconButton, Kbd } from "../parts/button";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { toast } from "../parts/toast";
import { Inert, Time } from "../parts/values";
import { type Theme, setTheme, useTheme } from "./theme";

const nextTheme: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const themeIcon = { system: "monitor", light: "sun", dark: "moon" } as const;

/** The bar above every page. */
export function Head({ session, onSearch, onHelp }: { session: Session; onSearch: () => void; onHelp: () => void }) {
  const { theme } = useTheme();
  const leave = async () => {
    try {
      await signOut();
    } catch {
      toast("The server could not be reached. The session stays valid until it expires.", { tone: "bad" });
      return;
    }
    // The page is reloaded, so that no data of the session stays in it.
    location.assign("/console/");
  };
  return (
    <header className="app-head">
      <button type="button" className="app-search" onClick={onSearch}>
        <Icon name="search" />
        <span>Search or run a command</span>
        <Kbd>{mod}</Kbd>
      </button>
      <LiveSign />
      <IconButton
        icon={themeIcon[theme]}
        label={`Theme: ${theme}`}
        onClick={() => setTheme(nextTheme[theme])}
      />
      <Menu
        label="Session"
        icon="user"
        head={
          <>
            <strong>
              <Inert text={session.name || session.id} />
            </strong>
            <div className="quiet">
              {session.scope} · until <Time at={session.expires_at} />
            </div>
            <div className="quiet">
              {session.version} · {session.engine.name} ({session.engine.boundary})
            </div>
          </>
        }
        items={[
          { label: "Keyboard shortcuts", onSelect: onHelp },
          { label: "Sign out", onSelect: () => void leave() },
        ]}
      />
    </header>
  );
}

const mod = /mac|iphone|ipad/i.test(navigator.platform) ? "⌘ K" : "Ctrl K";

const words = { live: "Live", reconnecting: "Reconnecting", offline: "Offline" } as const;

function LiveSign() {
  const state = useLiveState();
  const [paused, setPaused] = useLivePaused();
  const word = state === "live" && paused ? "Paused" : words[state];
  return (
    <div className="app-live">
      <span className={`app-live-word app-live-${paused ? "paused" : state}`} role="status">
        <Icon name={state === "live" ? (paused ? "pause" : "live") : "alert"} />
        <span>{word}</span>
      </span>
      <IconButton
        icon={paused ? "play" : "pause"}
        label={paused ? "Resume live updates" : "Pause live updates"}
        aria-pressed={paused}
        onClick={() => setPaused(!paused)}
      />
    </div>
  );
}
