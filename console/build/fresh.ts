import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/**
 * Removes the output of the last build, except the note that is shown in builds without the
 * console.
 */
export function fresh(dir: string): Plugin {
  return {
    name: "crannog-fresh",
    apply: "build",
    // At the end of the build, so that a failed build leaves the last output.
    generateBundle() {
      for (const name of readdirSync(dir)) if (name !== "README.md") rmSync(join(dir, name), { recursive: true });
    },
  };
}
