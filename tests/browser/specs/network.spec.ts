import { readFile } from "node:fs/promises";
import { expect, pressUntil, type Server, test } from "../fixtures";
import { askPolicy, upstream } from "../policy";
import { slowness } from "../slowness";

/** Reads the log of requests that the outside host received. */
const readUpstreamLog = async () => readFile(process.env["CRANNOG_UPSTREAM_LOG"] ?? "", "utf8");

/**
 * Sends a request that needs an approval, and returns a function that waits for its result. A
 * request without a decision for 20 s gets the answer to try again; the second one then uses the
 * approval.
 */
function send(server: Server, id: string, path: string): (want: string) => Promise<void> {
  const once = async () => (await server.exec(id, `curl -s -m 60 -X POST -d x "http://${upstream}${path}"`)).stdout;
  const first = once();
  return async (want) => {
    if (!(await first).includes(want)) expect(await once()).toContain(want);
  };
}

test("a denied request appears with its rule", async ({ admin, server }) => {
  const made = await server.create({ name: "denied", access: { net: "policy", policy: askPolicy } });
  await admin.goto(`${server.base}/console/s/${made.id}/network`);
  await server.exec(made.id, "curl -s -m 20 http://elsewhere.example.test/secret-path; true");
  const row = admin.getByRole("row", { name: /elsewhere\.example\.test/ }).first();
  await expect(row).toBeVisible();
  await expect(row).toContainText(/denied|deny/i);
  // Control: an allowed request is shown as such, and the outside host received it.
  expect((await server.exec(made.id, `curl -s -m 20 http://${upstream}/allowed`)).stdout).toContain("hello");
  await expect(admin.getByRole("row", { name: new RegExp(upstream) }).first()).toContainText(/allow/i);
  expect(await readUpstreamLog()).toContain("GET /allowed");
  await row.click();
  await expect(admin.getByText(/unlisted/).first()).toBeVisible();
});

test("an approval by keyboard lets a held request pass", async ({ admin, server }) => {
  const made = await server.create({ name: "asks", access: { net: "policy", policy: askPolicy } });
  await admin.goto(`${server.base}/console/approvals`);
  const held = send(server, made.id, "/held");
  await expect(admin.getByText("/held").first()).toBeVisible();
  expect(await readUpstreamLog()).not.toContain("POST /held");
  const card = admin.getByRole("article").filter({ hasText: "/held" });
  await pressUntil(
    async () => {
      await card.focus({ timeout: 1000 });
      await admin.keyboard.press("a");
    },
    () => expect(card).toHaveCount(0, { timeout: 3000 * slowness }),
  );
  await held("upstream says hello");
  expect(await readUpstreamLog()).toContain("POST /held");

  const refused = send(server, made.id, "/refused");
  await expect(admin.getByText("/refused").first()).toBeVisible();
  const dialog = admin.getByRole("dialog");
  await pressUntil(
    async () => {
      await admin.getByRole("article").filter({ hasText: "/refused" }).focus({ timeout: 1000 });
      await admin.keyboard.press("d");
    },
    () => expect(dialog).toBeVisible({ timeout: 3000 * slowness }),
  );
  await dialog.getByRole("textbox").fill("not on a friday");
  await dialog.getByRole("button", { name: "Deny" }).click();
  await refused("not on a friday");
  expect(await readUpstreamLog()).not.toContain("POST /refused");
});

test("an approval request is shown as a desktop notification while the page is hidden", async ({ page, server }) => {
  await page.addInitScript(() => {
    const shown: { title: string; body: string }[] = [];
    class FakeNotification {
      static readonly permission = "granted";
      static requestPermission = () => Promise.resolve("granted");
      constructor(title: string, options?: { body?: string }) {
        shown.push({ title, body: options?.body ?? "" });
      }
      close() {}
      addEventListener() {}
    }
    Object.assign(window, { Notification: FakeNotification, shown });
    document.hasFocus = () => false;
  });
  await server.signIn(page, "operator");
  const made = await server.create({ name: "notifies", access: { net: "policy", policy: askPolicy } });
  await page.goto(`${server.base}/console/approvals`);
  // Wait for the live connection: requests from before are not announced.
  await expect(page.getByText("Live", { exact: true })).toBeVisible();
  await page.getByRole("switch", { name: /desktop notifications/i }).or(page.getByLabel(/desktop notifications/i)).first().click();
  const held = send(server, made.id, "/noted");
  await expect.poll(() => page.evaluate(() => (window as unknown as { shown: { title: string; body: string }[] }).shown.map((n) => `${n.title} ${n.body}`).join("\n"))).toContain("noted");
  // The page is hidden, so it may not decide; another client does.
  const { approvals } = (await server.request("GET", "/v1/approvals")) as { approvals: { id: string; summary: string }[] };
  const pending = approvals.find((a) => a.summary.includes("noted"));
  await server.request("POST", `/v1/approvals/${pending?.id}/approve`, {});
  await held("hello");
});
