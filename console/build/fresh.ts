import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/** Removes the output of the last build. The note for builds without the console stays. */
export function fresh(dir: string): Plugin {
  return {
    name: "crannog-fresh",
    apply: "build",
    // Only at the end, so that a failed build leaves the last output.
    generateBundle() {
      for (const name of readdirSync(dir)) if (name !== "README.md") rmSync(join(dir, name), { recursive: true });
    },
  };
}
