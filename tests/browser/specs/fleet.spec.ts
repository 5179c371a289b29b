import { spawn } from "node:child_process";
import { once } from "node:events";
import type { CDPSession } from "@playwright/test";
import { expect, test } from "@playwright/test";
import { full, slowness } from "../slowness";

const program = process.env["CRANNOG_FLEET"];
const seconds = Number(process.env["CRANNOG_FLEET_SECONDS"] ?? (full ? "20" : "8"));

/** Measures a tab's memory after a garbage collection. */
async function tabMemory(cdp: CDPSession): Promise<{ heap: number; nodes: number; listeners: number }> {
  await cdp.send("HeapProfiler.collectGarbage");
  const { metrics } = await cdp.send("Performance.getMetrics");
  const of = (name: string) => metrics.find((m) => m.name === name)?.value ?? Number.NaN;
  return { heap: of("JSHeapUsedSize"), nodes: of("Nodes"), listeners: of("JSEventListeners") };
}

test("a thousand sandboxes that change each second need one stream, few rows and constant memory", async ({ page, browser }) => {
  test.setTimeout(seconds * 1000 + 360_000 * slowness);
  if (!program) throw new Error("CRANNOG_FLEET is not set; start the tests with tests/browser/run.sh");
  const fleet = spawn(program, ["-sandboxes", "1000"], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const link = await new Promise<string>((resolve, reject) => {
      let out = "";
      fleet.stdout.on("data", (chunk: Buffer) => {
        out += chunk.toString();
        const found = /^CONSOLE=(\S+)$/m.exec(out)?.[1];
        if (found) resolve(found);
      });
      fleet.once("exit", (code) => reject(new Error(`the fleet ended with ${code}`)));
    });
    const streams: string[] = [];
    page.on("request", (r) => {
      if (r.url().includes("/console/api/events") && r.method() === "GET") streams.push(r.url());
    });
    await page.goto(link);
    await expect(page.getByText(/1,?000 (sandboxes|running)/).first()).toBeVisible();

    const cdp = await page.context().newCDPSession(page);
    await cdp.send("Performance.enable");
    const system = await browser.newBrowserCDPSession();
    const cpuSeconds = async () => {
      const { processInfo } = await system.send("SystemInfo.getProcessInfo");
      return processInfo.filter((p) => p.type === "renderer").reduce((sum, p) => sum + p.cpuTime, 0);
    };
    await page.waitForTimeout(5000); // lets the page load everything
    const [before, cpu, at] = [await tabMemory(cdp), await cpuSeconds(), Date.now()];
    await page.waitForTimeout(seconds * 1000);
    const share = (await cpuSeconds() - cpu) / ((Date.now() - at) / 1000);
    const after = await tabMemory(cdp);
    console.log(
      `a tab with 1,000 sandboxes for ${seconds} s: ${(share * 100).toFixed(1)} % of a processor, heap ${(before.heap / 1e6).toFixed(1)} to ${(after.heap / 1e6).toFixed(1)} MB, nodes ${before.nodes} to ${after.nodes}, ${streams.length} stream`,
    );
    expect(streams).toHaveLength(1);
    // Rows out of view are not in the document, and their memory is freed.
    expect(after.nodes).toBeLessThan(6000);
    expect(after.nodes).toBeLessThan(before.nodes * 1.5);
    expect(after.listeners).toBeLessThan(before.listeners * 1.5 + 50);
    expect(after.heap).toBeLessThan(before.heap * 1.5 + 5e6);

    // Each of the thousand sandboxes can be found.
    await page.getByRole("searchbox", { name: "Filter" }).click();
    // Type the last characters first, one by one. The address changes with the input; no character
    // and no caret position may be lost.
    await page.keyboard.type("0777");
    await page.keyboard.press("Home");
    await page.keyboard.type("box-");
    await expect(page.getByRole("searchbox", { name: "Filter" })).toHaveValue("box-0777");
    await expect(page.getByText("box-0777").first()).toBeVisible();
    await expect(page.getByText("box-0001")).toHaveCount(0);
    expect(new URL(page.url()).search).toContain("box-0777");
  } finally {
    if (fleet.exitCode === null) {
      const gone = once(fleet, "exit");
      fleet.kill("SIGTERM");
      await gone;
    }
  }
});
