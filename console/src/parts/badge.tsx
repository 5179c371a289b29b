import type { ReactNode } from "react";
import { Icon, type IconName } from "./icon";

export type Tone = "ok" | "warn" | "bad" | "info" | "quiet";

/** A short word with a tone; the word is enough without the colour. */
export function Badge({ tone, icon, title, children }: { tone: Tone; icon?: IconName; title?: string; children: ReactNode }) {
  return (
    <span className={`p-badge p-tone-${tone}`} title={title}>
      {icon && <Icon name={icon} size={12} />}
      {children}
    </span>
  );
}

const states: Record<string, [Tone, IconName]> = {
  creating: ["info", "clock"],
  running: ["ok", "play"],
  pausing: ["info", "clock"],
  paused: ["quiet", "pause"],
  resuming: ["info", "clock"],
  stopping: ["info", "clock"],
  stopped: ["quiet", "stop"],
};

/** The state of a sandbox. */
export function StateBadge({ state }: { state: string }) {
  const [tone, icon] = states[state] ?? ["quiet", "question"];
  return (
    <Badge tone={tone} icon={icon}>
      {state}
    </Badge>
  );
}

const verdicts: Record<string, [Tone, IconName, string]> = {
  allow: ["ok", "check", "allowed"],
  deny: ["bad", "deny", "denied"],
  ask: ["warn", "question", "asked"],
};

/** A decision of a policy, never by colour only. */
export function Verdict({ effect }: { effect: "allow" | "deny" | "ask" | (string & {}) }) {
  const [tone, icon, word] = verdicts[effect] ?? ["quiet", "question", effect];
  return (
    <Badge tone={tone} icon={icon}>
      {word}
    </Badge>
  );
}
