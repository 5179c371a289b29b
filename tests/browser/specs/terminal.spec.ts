import type { Page } from "@playwright/test";
import { takeControl, expect, test } from "../fixtures";

/** The content of a terminal, as a screen reader reads it. */
const screen = (page: Page) => page.locator(".xterm-rows, .xterm-accessibility-tree").first();

test("two pages see one terminal, and only the one with control types", async ({ admin, server, browser }) => {
  const made = await server.create({ name: "shared" });
  await admin.goto(`${server.base}/console/s/${made.id}/terminal`);
  await takeControl(admin);
  await admin.keyboard.type("echo $((6*7))-answer\n");
  await expect(screen(admin)).toContainText("42-answer");

  // The second page opens later, shows the earlier output, and cannot type.
  const context = await browser.newContext();
  const second = await context.newPage();
  await server.signIn(second, "operator");
  await second.goto(admin.url());
  const attach = second.getByRole("button", { name: /attach|bash/i }).first();
  if (await attach.isVisible()) await attach.click();
  await expect(screen(second)).toContainText("42-answer");
  await second.locator(".xterm").first().click();
  await second.keyboard.type("echo sneaked-in\n");
  await admin.keyboard.type("echo first-types\n");
  await expect(screen(second)).toContainText("first-types");
  await expect(screen(second)).not.toContainText("sneaked-in");

  // Taking control takes it from the first page and is in the audit log.
  await takeControl(second, true);
  await expect(admin.getByRole("button", { name: "Take control" })).toBeVisible();
  await second.keyboard.type("echo now-second\n");
  await expect(screen(admin)).toContainText("now-second");
  await context.close();
  const record = await server.cli("audit", "show", "--json", "--sandbox", made.id);
  expect(record.match(/terminal\.control/g)?.length ?? 0).toBeGreaterThanOrEqual(2);
});
