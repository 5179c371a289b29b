import { api, unwrap } from "./client";
import { ApiProblem } from "./problem";

/**
 * Ends a sandbox, and keeps what is known of it. Of one that is paused the
 * server removes all that it has, recordings first: what was meant for a sandbox
 * that runs is not done to one that does not any more. Says whether it still had
 * to be ended.
 */
export async function endSandbox(id: string, was: string): Promise<boolean> {
  const params = { path: { id } };
  const look = async () => (await unwrap(api.GET("/v1/sandboxes/{id}", { params }))).state;
  const over = (state: string) => state === "stopped" || state === "stopping";
  const state = await look();
  if (over(state)) return false;
  const asleep = (state: string) => state === "paused" || state === "pausing";
  if (asleep(state) && !asleep(was)) {
    throw new ApiProblem(0, "console", "It was paused in the meantime.", "Of a paused one all that was written down goes too: look at it again.");
  }
  if (state !== "running") {
    await unwrap(api.DELETE("/v1/sandboxes/{id}", { params }));
    return true;
  }
  try {
    // It has no time left. DELETE would forget one that ended since we looked.
    await unwrap(api.POST("/v1/sandboxes/{id}/timeout", { params, body: { seconds: 0 } }));
  } catch (thrown) {
    if (thrown instanceof ApiProblem && thrown.code === "sandbox_not_running" && over(await look())) return false;
    throw thrown;
  }
  return true;
}
