import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, Server, test } from "../fixtures";

/** Changes one byte in the middle of the audit log's first file. */
async function changeByte(server: Server): Promise<void> {
  const dir = join(server.state, "record");
  const name = (await readdir(dir)).filter((n) => n.endsWith(".jsonl")).sort()[0];
  const file = await open(join(dir, name ?? ""), "r+");
  try {
    const text = (await file.readFile()).toString("latin1");
    const at = text.indexOf("sandbox.started");
    await file.write("X", at);
  } finally {
    await file.close();
  }
}

test("verification succeeds, and fails visibly after a byte was changed", async ({ page }) => {
  const server = await Server.start();
  try {
    const made = await server.create({ name: "recorded" });
    await server.exec(made.id, "true");
    await server.signIn(page);
    await page.goto(`${server.base}/console/record`);
    await expect(page.getByText("sandbox.started").first()).toBeVisible();
    await page.getByRole("button", { name: "Verify" }).click();
    const result = page.getByRole("status").or(page.getByRole("alert"));
    await expect(result.filter({ hasText: "verified" }).first()).toBeVisible();
    await changeByte(server);
    await page.getByRole("button", { name: "Verify" }).click();
    await expect(result.filter({ hasText: /changed/i }).filter({ hasText: /entry \d+|#\d+/i }).first()).toBeVisible();
  } finally {
    await server.stop();
  }
});
