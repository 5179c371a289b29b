import { api, unwrap } from "./client";
import { ApiProblem } from "./problem";

/**
 * Ends a sandbox and keeps its recordings. Removing a paused sandbox also removes its recordings,
 * so a sandbox that has ended is left alone. Returns whether the sandbox had to be ended.
 */
export async function endSandbox(id: string, lastKnownState: string): Promise<boolean> {
  const params = { path: { id } };
  const currentState = async () => (await unwrap(api.GET("/v1/sandboxes/{id}", { params }))).state;
  const hasEnded = (state: string) => state === "stopped" || state === "stopping";
  const state = await currentState();
  if (hasEnded(state)) return false;
  const isPaused = (state: string) => state === "paused" || state === "pausing";
  if (isPaused(state) && !isPaused(lastKnownState)) {
    throw new ApiProblem(0, "console", "The sandbox has been paused since.", "Removing a paused sandbox also removes its saved state. Check it again.");
  }
  if (state !== "running") {
    await unwrap(api.DELETE("/v1/sandboxes/{id}", { params }));
    return true;
  }
  try {
    // A timeout of zero ends the sandbox. DELETE would remove a sandbox that has ended since its
    // state was read.
    await unwrap(api.POST("/v1/sandboxes/{id}/timeout", { params, body: { seconds: 0 } }));
  } catch (thrown) {
    if (thrown instanceof ApiProblem && thrown.code === "sandbox_not_running" && hasEnded(await currentState())) return false;
    throw thrown;
  }
  return true;
}
