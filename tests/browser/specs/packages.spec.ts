import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { expect, type Server, test } from "../fixtures";
import { expectInert } from "../inert";
import { packagePolicy, upstream } from "../policy";

const files = { good: "/good-package/-/good-package-0.tgz", newer: "/good-package/-/good-package-1.tgz", hostile: "/hostile-package/-/hostile-package-0.tgz", denied: "/denied-package/-/denied-package-0.tgz" };

/** Requests all packages in a new sandbox, one of them twice and one that its policy denies. */
async function install(server: Server): Promise<string> {
  const made = await server.create({ name: "installs", access: { net: "policy", policy: packagePolicy } });
  const get = async (path: string) => (await server.exec(made.id, `curl -s -m 60 http://${upstream}${path}`)).stdout;
  expect(await get(files.good)).toBe("good content");
  expect(await get(files.good)).toBe("good content");
  expect(await get(files.newer)).toBe("newer content");
  expect(await get(files.hostile)).toBe("hostile content");
  expect(await get(files.denied)).toContain("packages.deny");
  return made.id;
}

async function open(page: Page, server: Server, path: string): Promise<void> {
  await page.goto(`${server.base}/console/${path}`);
  await expect(page.getByRole("heading", { level: 1, name: "Packages" })).toBeVisible();
  await expect(page.getByText(/^(Loading|Searching)…/)).toHaveCount(0);
}

async function expectAccessible(page: Page, what: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    const { violations } = await new AxeBuilder({ page }).setLegacyMode().withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]).analyze();
    expect.soft(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).slice(0, 3).join(" | ")}`), `${what} ${colorScheme}`).toEqual([]);
  }
}

/** Expects that nothing is wider than a phone, and no button or link is cut off at its edge. */
async function expectFitsPhone(page: Page, what: string): Promise<void> {
  await page.setViewportSize({ width: 390, height: 740 });
  const { wide, cut } = await page.evaluate(() => {
    const main = document.getElementById("main")!;
    const outside = [...main.querySelectorAll("button, a, select, input")].filter((e) => {
      const box = e.getBoundingClientRect();
      return box.width > 0 && (box.left < 0 || box.right > window.innerWidth + 0.5);
    });
    return { wide: Math.max(document.documentElement.scrollWidth - document.documentElement.clientWidth, main.scrollWidth - main.clientWidth), cut: outside.map((e) => e.outerHTML.slice(0, 200)) };
  });
  expect.soft(wide, `${what} at 390 px is wider than the screen`).toBeLessThanOrEqual(0);
  expect.soft(cut, `${what} at 390 px`).toEqual([]);
  await page.setViewportSize({ width: 1280, height: 800 });
}

test("an empty cache says how to turn it on", async ({ admin, server, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.base });
  await server.cli("cache", "prune");
  // By keyboard, from another page.
  await admin.keyboard.press("Control+k");
  await admin.getByRole("combobox", { name: "Search and commands" }).fill("packages");
  await admin.keyboard.press("Enter");
  await expect(admin.getByRole("heading", { name: "The package cache is empty" })).toBeVisible();
  for (const name of ["Verify", "Remove until … is left"]) await expect(admin.getByRole("button", { name })).toBeDisabled();
  await admin.getByRole("button", { name: "Copy" }).click();
  await expect(admin.getByRole("button", { name: "Copied" })).toBeVisible();
  const snippet = await admin.evaluate(() => navigator.clipboard.readText());
  expect(snippet).toContain("packages:");
  // The server accepts it as a part of a policy.
  await server.create({ name: "cached", access: { net: "policy", policy: `policy: v1\nlevel: light\n${snippet}` } });
  await expectAccessible(admin, "the empty cache");
  await expectFitsPhone(admin, "the empty cache");
});

test("what sandboxes installed is listed, verified and removed", async ({ admin, server }) => {
  await install(server);
  await open(admin, server, "packages");
  const totals = admin.getByRole("table", { name: "Totals by ecosystem" }).getByRole("row", { name: "npm" });
  // Two packages with three files and the two documents about them.
  await expect(totals.getByRole("cell").nth(1)).toHaveText("2");
  await expect(totals.getByRole("cell").nth(2)).toHaveText("3");
  await expect(totals.getByRole("cell").nth(3)).toHaveText("2");
  await expect(admin.getByRole("meter", { name: "Used budget" })).toHaveAttribute("aria-valuenow", "0");
  const list = admin.getByRole("table", { name: "Cached packages" });
  await expect(list.getByRole("row")).toHaveCount(6);
  // The version is a text that the registry chose.
  await expect(list.getByText("window.pwned=1").first()).toBeVisible();
  await expectInert(admin);
  await expectAccessible(admin, "the cache");
  await expectFitsPhone(admin, "the cache");

  await admin.keyboard.press("/");
  await admin.keyboard.type("good-package@1.1");
  await expect(list.getByRole("row")).toHaveCount(2);
  await expect(admin).toHaveURL(/q=good-package/);
  await expect(list.getByRole("row", { name: "npm:good-package@1.1.0" })).toBeVisible();
  await admin.getByRole("searchbox", { name: "Filter" }).fill("no such package");
  await expect(admin.getByRole("heading", { name: "Nothing in the cache matches" })).toBeVisible();
  await admin.getByRole("searchbox", { name: "Filter" }).fill("");
  await admin.getByRole("combobox", { name: "Sort by" }).selectOption("largest");
  // The hostile package's document contains the longest text.
  await expect(list.getByRole("row").nth(1)).toContainText("document");

  await admin.getByRole("button", { name: "Verify" }).click();
  await expect(admin.getByText(/^Verified 5 contents/)).toBeVisible();

  await admin.getByRole("button", { name: "Remove until … is left" }).click();
  const dialog = admin.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Data to keep" }).fill("many");
  await expect(dialog.getByRole("button", { name: "Remove", exact: true })).toBeDisabled();
  await dialog.getByRole("textbox", { name: "Data to keep" }).fill("1g");
  await dialog.getByRole("button", { name: "Remove", exact: true }).click();
  await expect(admin.getByText("Nothing had to be removed.")).toBeVisible();
  await admin.getByRole("button", { name: "Remove until … is left" }).click();
  await dialog.getByRole("textbox", { name: "Data to keep" }).fill("0");
  await dialog.getByRole("button", { name: "Remove everything" }).click();
  await expect(admin.getByText(/^Removed 5 entries/)).toBeVisible();
  await expect(admin.getByRole("heading", { name: "The package cache is empty" })).toBeVisible();
  expect(JSON.parse(await server.cli("cache", "ls", "--json"))).toEqual([]);
  // The removal is in the audit log, with the session.
  await admin.goto(`${server.base}/console/record?text=package.prune`);
  await expect(admin.getByRole("listitem").filter({ hasText: "package.prune" }).first()).toContainText("console:");
});

test("the answers of the gate are listed, and filtered for refusals", async ({ admin, server }) => {
  const id = await install(server);
  await open(admin, server, "packages?view=answers");
  await expect(admin.getByRole("navigation", { name: "Views" }).locator("[aria-current]")).toHaveText("Answers");
  const table = admin.getByRole("table", { name: "Answers of the gate, the newest first" });
  const refused = table.getByRole("row", { name: "refused npm:denied-package" }).first();
  await expect(refused).toContainText("packages.deny");
  await expect(refused).toContainText("not served");
  await expect(table.getByRole("row", { name: "passed npm:good-package@1.0.0" }).filter({ hasText: "cache" }).first()).toBeVisible();
  await expect(table.getByRole("row", { name: "passed npm:good-package@1.0.0" }).filter({ hasText: "registry" }).first()).toBeVisible();
  await expect(table.getByText("window.pwned=1").first()).toBeVisible();
  await expectInert(admin);
  await expectAccessible(admin, "the answers");
  await expectFitsPhone(admin, "the answers");

  await admin.getByRole("combobox", { name: "Verdict" }).selectOption("refused");
  await expect(table.getByRole("row", { name: /^passed/ })).toHaveCount(0);
  await expect(refused).toBeVisible();
  // A further refusal appears by itself, and a further answer that passed does not.
  const before = await table.getByRole("row").count();
  await server.exec(id, `curl -s http://${upstream}${files.good}; curl -s http://${upstream}${files.denied}`);
  await expect(table.getByRole("row")).toHaveCount(before + 1);
  // The address restores the filter.
  await admin.reload();
  await expect(admin.getByRole("combobox", { name: "Verdict" })).toHaveValue("refused");
  await expect(table.getByRole("row")).toHaveCount(before + 1);
  const metrics = await (await fetch(`${server.base}/v1/metrics`, { headers: { "X-API-Key": server.key } })).text();
  for (const labels of ['verdict="passed",cached="true"', 'verdict="passed",cached="false"', 'verdict="refused",cached="false"']) {
    expect(metrics).toMatch(new RegExp(`^crannog_package_answers_total\\{ecosystem="npm",${labels}\\} [1-9]`, "m"));
  }
  for (const name of ["fetched_bytes_total", "served_bytes_total", "cache_bytes", "cache_entries"]) expect(metrics).toMatch(new RegExp(`^crannog_package_${name}\\{ecosystem="npm"\\} [1-9]`, "m"));
  // No name of a package becomes a label.
  expect(metrics).not.toMatch(/-package/);
  await refused.getByRole("link", { name: id }).click();
  await expect(admin).toHaveURL(new RegExp(`/s/${id}/network`));
});

test("a viewer sees the answers, and is told why the cache is hidden", async ({ page, server }) => {
  await install(server);
  await server.signIn(page, "viewer");
  await open(page, server, "packages");
  await expect(page.getByRole("heading", { name: "The package cache is for admins" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Verify" })).toHaveCount(0);
  await page.getByRole("link", { name: "answers of the gate" }).click();
  await expect(page.getByRole("row", { name: "refused npm:denied-package" }).first()).toBeVisible();
  // Control: the server refuses what the page hides.
  expect(await page.evaluate(async () => (await fetch("/console/api/v1/package-cache")).status)).toBe(403);
});
