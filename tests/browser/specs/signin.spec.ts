import { expect, test } from "../fixtures";

test("a link signs in once, and the token does not stay in the address bar", async ({ page, server, browser }) => {
  const link = await server.link("operator");
  await page.goto(link);
  await expect(page.getByRole("heading", { level: 1, name: "Fleet" })).toBeVisible();
  await expect(page).not.toHaveURL(/token/);

  const otherContext = await browser.newContext();
  const otherPage = await otherContext.newPage();
  await otherPage.goto(link);
  await expect(otherPage.getByRole("heading", { level: 1, name: /sign in/i })).toBeVisible();
  await expect(otherPage.getByRole("navigation")).toHaveCount(0);
  await otherContext.close();
});

test("the session cookie is strict, not readable by scripts, and valid only for the console", async ({ admin, server, context }) => {
  const cookies = await context.cookies();
  const cookie = cookies.find((c) => c.name === "crannog_console");
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict", path: "/console/" });
  expect(await admin.evaluate(() => document.cookie)).toBe("");
  // Control: the same request gets a response below /console/.
  const head = { Cookie: `crannog_console=${cookie?.value ?? ""}` };
  expect((await fetch(`${server.base}/console/api/v1/sandboxes`, { headers: head })).status).toBe(200);
  expect((await fetch(`${server.base}/v1/sandboxes`, { headers: head })).status).toBe(401);
  expect((await fetch(`${server.base}/sandboxes`, { headers: head })).status).toBe(401);
});

test("another site can neither act nor read with a signed-in person's session", async ({ admin, server, context }) => {
  const cookie = (await context.cookies()).find((c) => c.name === "crannog_console")?.value ?? "";
  const create = (head: Record<string, string>) =>
    fetch(`${server.base}/console/api/v1/sandboxes`, {
      method: "POST",
      headers: { Cookie: `crannog_console=${cookie}`, "Content-Type": "application/json", ...head },
      body: JSON.stringify({ template: "nothing-like-it" }),
    });
  for (const head of [{ Origin: "https://evil.example" }, { Origin: "null" }, { "Sec-Fetch-Site": "cross-site" }]) {
    expect((await create(head)).status, JSON.stringify(head)).toBe(403);
  }
  // Control: from the console's own page, the request reaches the template, which does not exist.
  expect((await create({ Origin: server.base, "Sec-Fetch-Site": "same-origin" })).status).toBe(404);
  const html = await fetch(`${server.base}/console/`);
  expect(html.headers.get("content-security-policy")).toContain("default-src 'none'");
  expect(html.headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
  await expect(admin.getByRole("heading", { level: 1 })).toBeVisible();
});

test("a viewer can see but not act", async ({ page, server }) => {
  const made = await server.create({ name: "watched" });
  await server.signIn(page, "viewer");
  await page.goto(`${server.base}/console/s/${made.id}/live`);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("watched");
  for (const name of ["Stop", "Pause", "Snapshot", "Fork"]) {
    const button = page.getByRole("button", { name, exact: true });
    expect((await button.count()) === 0 || (await button.isDisabled()), name).toBe(true);
  }
  // The server itself refuses such a request, too.
  const status = await page.evaluate(
    async (id) => (await fetch(`/console/api/v1/sandboxes/${id}`, { method: "DELETE" })).status,
    made.id,
  );
  expect(status).toBe(403);
  const seen = await page.evaluate(async (id) => (await fetch(`/console/api/v1/sandboxes/${id}`)).status, made.id);
  expect(seen).toBe(200);
  const keys = await page.evaluate(async () => (await fetch("/console/api/v1/keys")).status);
  expect(keys).toBe(403);
});

test("signing out ends the session at the server", async ({ page, server, context }) => {
  await server.signIn(page, "operator");
  const cookie = (await context.cookies()).find((c) => c.name === "crannog_console")?.value ?? "";
  const status = async () =>
    (await fetch(`${server.base}/console/api/session`, { headers: { Cookie: `crannog_console=${cookie}` } })).status;
  expect(await status()).toBe(200);
  expect(await page.evaluate(async () => (await fetch("/console/api/session", { method: "DELETE" })).ok)).toBe(true);
  expect(await status()).toBe(401);
  await page.reload();
  await expect(page.getByRole("heading", { level: 1, name: /sign in/i })).toBeVisible();
});
