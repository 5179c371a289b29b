import { defineConfig } from "@playwright/test";

// Debian's Chromium, so that nothing is downloaded. Its own sandbox needs a
// user that is not root.
const executablePath = process.env["CRANNOG_CHROMIUM"] ?? "/usr/bin/chromium";

export default defineConfig({
  testDir: "specs",
  outputDir: process.env["CRANNOG_BROWSER_OUT"] ?? "results",
  // Boxes and a browser share two processors.
  workers: 1,
  fullyParallel: false,
  forbidOnly: true,
  retries: 0,
  timeout: 180_000,
  expect: { timeout: 40_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] },
    trace: "off",
    screenshot: "only-on-failure",
  },
});
