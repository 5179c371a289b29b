import { api, unwrap } from "../api/client";
import type { FleetRow } from "../api/console";
import { endSandbox } from "../api/end";
import { type ApiProblem, asProblem } from "../api/problem";

export type Act = "stop" | "pause" | "resume";

/** The name of each action, and the states in which it is possible. */
export const acts: Record<Act, { label: string; doing: string; done: string; isPossible: (row: FleetRow) => boolean }> = {
  stop: { label: "Stop", doing: "Stopping", done: "stopped", isPossible: (row) => row.state !== "stopped" && row.state !== "stopping" },
  pause: { label: "Pause", doing: "Pausing", done: "paused", isPossible: (row) => row.state === "running" },
  resume: { label: "Resume", doing: "Resuming", done: "resumed", isPossible: (row) => row.state === "paused" },
};

/** Performs an action on one sandbox, for the state that it had when the user confirmed. */
export async function perform(act: Act, { id, state }: Pick<FleetRow, "id" | "state">): Promise<void> {
  const params = { path: { id } };
  switch (act) {
    case "stop":
      await endSandbox(id, state);
      return;
    case "pause":
      await unwrap(api.POST("/v1/sandboxes/{id}/pause", { params, body: {} }));
      return;
    case "resume":
      await unwrap(api.POST("/v1/sandboxes/{id}/resume", { params, body: {} }));
  }
}

export type Outcome = { state: "waiting" } | { state: "done" } | { state: "failed"; problem: ApiProblem };

/**
 * Performs an action on several sandboxes, a few at a time, and reports each result when it is
 * known. A failure does not stop the others.
 */
export async function forEach<T>(
  all: readonly T[],
  run: (one: T) => Promise<void>,
  report: (one: T, outcome: Outcome) => void,
  parallel = 4,
): Promise<void> {
  const remaining = [...all];
  const work = async () => {
    for (let one = remaining.shift(); one !== undefined; one = remaining.shift()) {
      try {
        await run(one);
        report(one, { state: "done" });
      } catch (thrown) {
        report(one, { state: "failed", problem: asProblem(thrown) });
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallel, all.length) }, work));
}
