import { expect, test } from "../fixtures";
import { slowness } from "../slowness";

test("a sandbox is created, runs code, and its chart is shown", async ({ admin, server }) => {
  test.setTimeout(600_000 * slowness);
  await admin.goto(`${server.base}/console/new`);
  await admin.getByLabel("Name", { exact: true }).fill("charts");
  await admin.getByRole("button", { name: "Create", exact: true }).click();

  const code = admin.getByLabel("Code");
  await code.fill("import time\nfor i in range(3):\n    print('line', i, flush=True)\n    time.sleep(0.5)\n6*7");
  await admin.getByRole("button", { name: "Run", exact: true }).click();
  // Output is shown before the cell has ended.
  await expect(admin.getByText("line 0")).toBeVisible(); // waits for the interpreter's start
  await expect(admin.getByText("line 2")).toBeVisible();
  await expect(admin.getByText("42", { exact: true })).toBeVisible();

  await code.fill("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [1, 4, 9])\nplt.show()");
  await admin.getByRole("button", { name: "Run", exact: true }).click();
  const chart = admin.getByRole("img", { name: /chart|figure|image/i }).first();
  await expect(chart).toBeVisible();
  await expect.poll(() => chart.evaluate((img: HTMLImageElement) => img.naturalWidth)).toBeGreaterThan(100);

  const { sandboxes } = (await server.request("GET", "/v1/sandboxes")) as { sandboxes: { name: string }[] };
  // The console's sandbox belongs to no API key, so a request with a key does not list it.
  expect(sandboxes.map((s) => s.name)).not.toContain("charts");
  expect(JSON.parse(await server.cli("ls", "--json"))).toContainEqual(expect.objectContaining({ name: "charts" }));
});
