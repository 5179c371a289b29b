import { spawn } from "node:child_process";
import { once } from "node:events";
import type { CDPSession } from "@playwright/test";
import { expect, test } from "@playwright/test";
import { full, slowness } from "../slowness";

const program = process.env["CRANNOG_FLEET"];
const seconds = Number(process.env["CRANNOG_FLEET_SECONDS"] ?? (full ? "20" : "8"));

/** The memory of a tab, after a garbage collection. */
async function held(cdp: CDPSession): Promise<{ heap: number; nodes: number; listeners: number }> {
  await cdp.send("HeapProfiler.collectGarbage");
  const { metrics } = await cdp.send("Performance.getMetrics");
  const of = (name: string) => metrics.find((m) => m.name === name)?.value ?? Number.NaN;
  return { heap: of("JSHeapUsedSize"), nodes: of("Nodes"), listeners: of("JSEventListeners") };
}

test("a thousand sandboxes that move each second are one stream, few rows and no growth", async ({ page, browser }) => {
  test.setTimeout(seconds * 1000 + 360_000 * slowness);
  if (!program) throw new Error("CRANNOG_FLEET names no program; start the tests with tests/browser/run.sh");
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
    const used = async () => {
      const { processInfo } = await system.send("SystemInfo.getProcessInfo");
      return processInfo.filter((p) => p.type === "renderer").reduce((sum, p) => sum + p.cpuTime, 0);
    };
    await page.waitForTimeout(5000); // what is loaded once is loaded
    const [before, cpu, at] = [await held(cdp), await used(), Date.now()];
    await page.waitForTimeout(seconds * 1000);
    const share = (await used() - cpu) / ((Date.now() - at) / 1000);
    const after = await held(cdp);
    console.log(
      `a tab with 1,000 sandboxes for ${seconds} s: ${(share * 100).toFixed(1)} % of a processor, heap ${(before.heap / 1e6).toFixed(1)} to ${(after.heap / 1e6).toFixed(1)} MB, nodes ${before.nodes} to ${after.nodes}, ${streams.length} stream`,
    );
    expect(streams).toHaveLength(1);
    // Rows out of view are not in the document, and nothing of their rendering is kept.
    expect(after.nodes).toBeLessThan(6000);
    expect(after.nodes).toBeLessThan(before.nodes * 1.5);
    expect(after.listeners).toBeLessThan(before.listeners * 1.5 + 50);
    expect(after.heap).toBeLessThan(before.heap * 1.5 + 5e6);

    // All thousand can be reached.
    await page.getByRole("searchbox", { name: "Filter" }).click();
    // The letters are typed one by one, and the first ones last: the address changes with the
    // input, and neither a letter nor the position of the caret may be lost.
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
