import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { takeControl, expect, pressUntil, Server, test } from "../fixtures";
import { askPolicy, upstream } from "../policy";
import { slowness } from "../slowness";

const shots = process.env["CRANNOG_SCREENSHOTS"] ?? "shots";

// Takes the README's pictures of a typical day. Each picture is checked for its subject first.
test("pictures of a fleet at work", async ({ page: admin }) => {
  test.setTimeout(900_000 * slowness);
  const server = await Server.start(); // its own server, so that no other sandbox is shown
  try {
    await takePictures(admin, server);
  } finally {
    await server.stop();
  }
});

async function takePictures(admin: Page, server: Server): Promise<void> {
  await server.signIn(admin);
  await mkdir(shots, { recursive: true });
  const access = { net: "policy", policy: askPolicy };
  const long = { timeout_seconds: 1800 };
  const create = (name: string, team: string, more: object = {}) => server.create({ name, metadata: { team }, ...long, ...more });
  const report = await create("report-builder", "search", { access });
  const nightly = await create("nightly-tests", "build");
  const crawler = await create("link-checker", "web", { access });
  const cleaning = await create("data-cleaning", "search");
  const docs = await create("docs-agent", "web");
  const background = (id: string, line: string) => server.exec(id, `setsid sh -c '${line}' >/dev/null 2>&1 & echo started`);
  await background(nightly.id, "while :; do timeout 3 sh -c \"while :; do :; done\"; sleep 2; done");
  await background(cleaning.id, 'python3 -c "import time\nfor i in range(900):\n sum(range(3000000)); time.sleep(0.4)"');
  await background(crawler.id, `while :; do curl -s -m 5 http://${upstream}/page-$$; curl -s -m 5 http://mirror.example.test/; sleep 1; done`);
  await server.exec(docs.id, "mkdir -p /workspace && echo '# Notes' > /workspace/notes.md");
  await server.request("POST", `/v1/sandboxes/${docs.id}/pause`);
  await server.exec(report.id, "mkdir -p /workspace && cd /workspace && printf 'a,b\\n1,2\\n' > in.csv && python3 -c 'print(open(\"in.csv\").read())' && mv in.csv table.csv");
  await server.exec(report.id, `curl -s -m 20 http://${upstream}/rows.json > /workspace/rows.json; curl -s -m 20 http://tracker.example.test/; true`);
  const send = () => server.exec(report.id, `curl -s -m 120 -X POST -d total=42 http://${upstream}/reports`);
  const held = send();

  await admin.setViewportSize({ width: 1280, height: 720 });
  await admin.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  await admin.goto(`${server.base}/console/`);
  await expect(admin.getByRole("link", { name: "1 waiting", exact: true })).toBeVisible();
  await expect(admin.locator(".p-badge", { hasText: "paused" }).first()).toBeVisible();
  await admin.waitForTimeout(25_000); // lets the CPU charts fill
  await admin.screenshot({ path: join(shots, "readme-fleet.png") });

  await admin.goto(`${server.base}/console/approvals`);
  await expect(admin.getByText("/reports").first()).toBeVisible();
  await admin.screenshot({ path: join(shots, "readme-approvals.png") });

  await admin.emulateMedia({ colorScheme: "dark" });
  await admin.goto(`${server.base}/console/s/${report.id}/live`);
  await expect(admin.getByText("denied").first()).toBeVisible();
  await takeControl(admin);
  await admin.keyboard.type("cd /workspace && ls -l && python3 -c 'print(6*7)'\n");
  await expect(admin.locator(".xterm-rows, .xterm-accessibility-tree").first()).toContainText("42");
  await admin.waitForTimeout(8_000);
  await admin.screenshot({ path: join(shots, "readme-sandbox.png") });

  await admin.goto(`${server.base}/console/approvals`);
  const approve = admin.getByRole("button", { name: "Approve", exact: true });
  await expect(approve).toHaveCount(1);
  await pressUntil(
    () => approve.click({ timeout: 1000 }),
    () => expect(approve).toHaveCount(0, { timeout: 3000 * slowness }),
  );
  // The first request got the answer to try again if it was pending for too long.
  if (!(await held).stdout.includes("hello")) expect((await send()).stdout).toContain("hello");
}
