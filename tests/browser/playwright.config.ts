import { defineConfig } from "@playwright/test";
import { full, slowness } from "./slowness";

// Debian's Chromium, so that nothing is downloaded. Chromium's own sandbox would need a user other
// than root.
const executablePath = process.env["CRANNOG_CHROMIUM"] ?? "/usr/bin/chromium";

export default defineConfig({
  testDir: "specs",
  // Other tests check the same pages as the README's pictures.
  testIgnore: full ? [] : ["**/pictures.spec.ts"],
  outputDir: process.env["CRANNOG_BROWSER_OUT"] ?? "results",
  // Each worker has its own server and browser.
  workers: 2,
  fullyParallel: false,
  forbidOnly: true,
  retries: 0,
  // Both limits only end a test that hangs.
  timeout: 360_000 * slowness,
  expect: { timeout: 120_000 * slowness },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] },
    trace: "off",
    screenshot: "only-on-failure",
  },
});
