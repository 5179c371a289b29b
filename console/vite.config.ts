import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { budget } from "./build/budget.ts";
import { compress } from "./build/compress.ts";
import { fresh } from "./build/fresh.ts";

const out = fileURLToPath(new URL("../internal/frontend/console/dist", import.meta.url));

export default defineConfig({
  base: "/console/",
  plugins: [react(), fresh(out), budget(), compress(out)],
  build: {
    outDir: out,
    // The note for builds without the console stays, because it is tracked by git.
    emptyOutDir: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  server: {
    // `npm run dev` beside a server: CRANNOG_SERVER=http://127.0.0.1:7070
    proxy: { "/console/api": { target: process.env["CRANNOG_SERVER"] ?? "http://127.0.0.1:7070", ws: true } },
  },
  // The time limit only ends a test that hangs: a machine that builds and tests at once is slow.
  test: {
    environment: "happy-dom", pool: "threads", restoreMocks: true, testTimeout: 300_000, setupFiles: ["src/app/timeout.fixture.ts"],
    // A document for each file takes longer than most files' tests. Only tests of components need
    // their own: what one renders stays in the modules that it uses.
    projects: [
      { extends: true, test: { name: "logic", include: ["src/**/*.test.ts"], isolate: false } },
      { extends: true, test: { name: "components", include: ["src/**/*.test.tsx"] } },
    ],
  },
});
