import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import AxeBuilder from "@axe-core/playwright";
import { expect, pressUntil, test } from "../fixtures";
import { askPolicy, upstream } from "../policy";
import { full, slowness } from "../slowness";

const shots = process.env["CRANNOG_SCREENSHOTS"] ?? "shots";

test("every page is accessible and fits a phone", async ({ admin, server }, info) => {
  test.setTimeout(1_200_000 * slowness);
  const long = { timeout_seconds: 1800 };
  const made = await server.create({ name: "report-builder", metadata: { team: "search" }, ...long, access: { net: "policy", policy: askPolicy } });
  await server.create({ name: "nightly-tests", metadata: { team: "build" }, ...long });
  await server.exec(made.id, "mkdir -p /workspace && echo '# Report' > /workspace/report.md && python3 -c 'print(6*7)'");
  await server.exec(made.id, `curl -s -m 20 http://${upstream}/data > /workspace/data.txt; curl -s -m 20 http://elsewhere.example.test/; true`);
  const publish = () => server.exec(made.id, `curl -s -m 120 -X POST -d x http://${upstream}/publish`);
  const held = publish();
  const s = `s/${made.id}`;
  const pages = [
    "", "approvals", "record", "policy", "new", "keys", "secrets", "templates", "snapshots", "packages", "packages?view=answers", "settings", "doctor",
    `${s}/live`, `${s}/terminal`, `${s}/files?path=/workspace`, `${s}/processes`, `${s}/network`, `${s}/ports`, `${s}/snapshots`, `${s}/policy`, `${s}/secrets`, `${s}/record`,
  ];
  await mkdir(shots, { recursive: true });
  const check = async (path: string, scheme: "light" | "dark") => {
    // These pages show no preview and no HTML result, so they have no frames. Without legacy mode
    // axe opens a second page each time to combine the results of frames, which takes as long as
    // the rules.
    const { violations } = await new AxeBuilder({ page: admin }).setLegacyMode().withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]).analyze();
    const found = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).slice(0, 3).join(" | ")}`);
    expect.soft(found, `${path || "fleet"} ${scheme}`).toEqual([]);
    if (full) await admin.screenshot({ path: join(shots, `${(path || "fleet").replace(made.id, "ID").replace(/[^a-z]+/gi, "-")}-${scheme}.png`) });
  };
  const open = async (path: string) => {
    await admin.goto(`${server.base}/console/${path}`);
    await expect(admin.getByRole("heading", { level: 1 })).toBeVisible();
    await expect(admin.getByText("Loading…")).toHaveCount(0); // otherwise the rules would check an empty page
    await expect(admin.getByRole("heading", { level: 1 })).toHaveCount(1);
  };
  for (const scheme of ["light", "dark"] as const) {
    await admin.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    // make test loads the even pages in one theme and the odd ones in the other.
    for (const [i, path] of pages.entries()) {
      if (!full && i % 2 !== (scheme === "light" ? 0 : 1)) continue;
      await open(path);
      await check(path, scheme);
    }
  }
  await admin.setViewportSize({ width: 375, height: 740 });
  for (const path of ["", "approvals", `${s}/live`, "record", "packages"]) {
    await admin.goto(`${server.base}/console/${path}`);
    await expect(admin.getByRole("heading", { level: 1 })).toBeVisible();
    await expect(admin.getByText("Loading…")).toHaveCount(0);
    const wide = await admin.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect.soft(wide, `${path || "fleet"} at 375 px is wider than the screen`).toBeLessThanOrEqual(0);
    if (full) await admin.screenshot({ path: join(shots, `phone-${(path || "fleet").replace(made.id, "ID").replace(/[^a-z]+/gi, "-")}.png`) });
  }
  await admin.goto(`${server.base}/console/approvals`);
  const approve = admin.getByRole("button", { name: "Approve", exact: true });
  await expect(approve).toHaveCount(1);
  await pressUntil(
    () => approve.click({ timeout: 1000 }),
    () => expect(approve).toHaveCount(0, { timeout: 3000 * slowness }),
  );
  // The first request got the answer to try again if it was pending for too long.
  if (!(await held).stdout.includes("hello")) expect((await publish()).stdout).toContain("hello");
  expect(info.errors).toEqual([]);
});
