import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/** Removes what the build before left; the note for builds without the console stays. */
export function fresh(dir: string): Plugin {
  return {
    name: "crannog-fresh",
    apply: "build",
    // Only once all is made, so that a build that fails leaves what was there.
    generateBundle() {
      for (const name of readdirSync(dir)) if (name !== "README.md") rmSync(join(dir, name), { recursive: true });
    },
  };
}
