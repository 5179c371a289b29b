import { expect, Server, test } from "../fixtures";

test("a page continues after its server was killed and restarted", async ({ page }) => {
  const server = await Server.start();
  try {
    const made = await server.create({ name: "survivor" });
    await server.signIn(page);
    await page.goto(`${server.base}/console/s/${made.id}/live`);
    await server.exec(made.id, "echo first-command");
    await expect(page.getByText(/first-command/).first()).toBeVisible();

    await server.crash();
    await expect(page.getByText(/reconnecting|offline/i).first()).toBeVisible();
    await server.startProcess();
    // The sandbox was adopted, the session is still valid, and no event is missing or doubled.
    await server.exec(made.id, "echo second-command");
    await expect(page.getByText(/second-command/).first()).toBeVisible();
    await expect(page.getByText(/reconnecting|offline/i)).toHaveCount(0);
    await expect(page.getByText(/echo second-command/)).toHaveCount(1);
  } finally {
    await server.stop();
  }
});
