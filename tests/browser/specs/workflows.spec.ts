import { expect, pressUntil, test } from "../fixtures";
import { askPolicy, upstream } from "../policy";
import { slowness } from "../slowness";

test("a preview of a sandbox's page has another origin and cannot act on the console", async ({ admin, server }) => {
  const made = await server.create({ name: "serves" });
  const page = `<h1>page of the sandbox</h1><script>
    fetch("${server.base}/console/api/session", {credentials: "include"}).then((r) => r.text()).then((t) => document.title = "read " + t, () => document.title = "refused");
    try { parent.document.body.innerHTML = "taken over" } catch (e) {}
    try { top.location = "http://evil.example/" } catch (e) {}
  </script>`;
  await server.exec(made.id, `mkdir -p /tmp/www && cat > /tmp/www/index.html <<'EOF'\n${page}\nEOF\ncd /tmp/www && (setsid python3 -m http.server 8000 >/dev/null 2>&1 &) ; for i in $(seq 600); do curl -s -o /dev/null http://127.0.0.1:8000/ && exit 0; sleep 0.1; done; exit 1`);
  await admin.goto(`${server.base}/console/s/${made.id}/ports`);
  await admin.getByRole("button", { name: "Preview" }).first().click();
  const frame = admin.frameLocator("iframe");
  await expect(frame.getByRole("heading", { name: "page of the sandbox" })).toBeVisible();
  const inner = admin.frames().find((f) => f !== admin.mainFrame());
  expect(new URL(inner?.url() ?? "").origin).not.toBe(server.base);
  await expect.poll(() => inner?.evaluate(() => document.title)).toBe("refused");
  await expect(admin.getByRole("heading", { level: 1 })).toContainText("serves");
  expect(admin.url()).toContain(`/s/${made.id}/ports`);
});

test("a denied request's row offers a rule that allows the host", async ({ admin, server }) => {
  const made = await server.create({ name: "rules", access: { net: "policy", level: "light", policy: "policy: v1\nlevel: light\nnetwork: {unlisted: deny}\n" } });
  const get = async () => (await server.exec(made.id, `curl -s -m 20 http://${upstream}/by-rule`)).stdout;
  expect(await get()).not.toContain("hello");
  await admin.goto(`${server.base}/console/s/${made.id}/network`);
  await admin.getByRole("button", { name: `Actions for ${upstream}` }).first().click();
  await admin.getByRole("menuitem", { name: "Allow host" }).click();
  const dialog = admin.getByRole("dialog");
  await expect(dialog.getByRole("region", { name: "Draft" })).toContainText(upstream);
  await dialog.getByRole("button", { name: "Allow host" }).click();
  await expect(dialog).toHaveCount(0);
  // A lookup has no port, so the new rule is for TLS. The HTTP request stays denied.
  const { document } = (await server.request("GET", `/v1/sandboxes/${made.id}/policy`)) as { document: string };
  expect(document).toContain(upstream);
});

test("a recording replays what a command printed", async ({ admin, server }) => {
  const made = await server.create({ name: "replays" });
  await server.exec(made.id, "echo printed-before");
  await admin.goto(`${server.base}/console/s/${made.id}/terminal`);
  await admin.getByRole("list", { name: "Recordings" }).getByText(/printed-before/).first().click();
  await expect(admin.locator(".xterm-rows, .xterm-accessibility-tree").first()).toContainText("printed-before");
  await expect(admin.getByRole("slider", { name: "Position" })).toBeVisible();
  // A stopped sandbox keeps its recordings.
  await admin.getByRole("button", { name: "Stop", exact: true }).click();
  await admin.getByRole("alertdialog").getByRole("button", { name: "Stop" }).click();
  await expect(admin.getByRole("alertdialog")).toHaveCount(0);
  expect(await server.request("GET", `/v1/sandboxes/${made.id}`)).toMatchObject({ state: "stopped" });
  await admin.reload();
  await admin.getByRole("list", { name: "Recordings" }).getByText(/printed-before/).first().click();
  await expect(admin.locator(".xterm-rows, .xterm-accessibility-tree").first()).toContainText("printed-before");
});

test("the policy editor checks a document while typing and explains a request", async ({ admin, server }) => {
  const made = await server.create({ name: "governed", access: { net: "policy", policy: askPolicy } });
  await admin.goto(`${server.base}/console/policy?sandbox=${made.id}`);
  const editor = admin.locator(".cm-content").first();
  await expect(editor).toContainText(upstream);
  await admin.getByLabel("URL").fill(`http://${upstream}/x`);
  await admin.getByRole("combobox", { name: "Method" }).selectOption("POST").catch(async () => {
    await admin.getByRole("combobox", { name: "Method" }).click();
    await admin.getByRole("option", { name: "POST" }).click();
  });
  await admin.getByRole("button", { name: "Explain" }).click();
  await expect(admin.getByText(/rule-2/).first()).toBeVisible();
  await editor.click();
  await admin.keyboard.press("Control+End");
  await admin.keyboard.type("\nno-such-field: 1\n");
  await expect(admin.getByText(/no-such-field/).nth(1)).toBeVisible();
  await expect(admin.locator(".cm-lintRange-error, .cm-lint-marker-error").first()).toBeVisible();
});

test("the keyboard reaches sandboxes and the audit log, and an entry has an address", async ({ admin, server }) => {
  const made = await server.create({ name: "by-keyboard" });
  await server.exec(made.id, "echo for-the-log");
  await admin.goto(`${server.base}/console/`);
  // Keys have no effect before the page is loaded.
  await expect(admin.getByRole("row", { name: /by-keyboard/ }).or(admin.getByText("by-keyboard")).first()).toBeVisible();
  await admin.keyboard.press("Control+k");
  await admin.getByRole("dialog").getByRole("combobox").or(admin.getByRole("dialog").getByRole("textbox")).first().fill("by-keyboard");
  await expect(admin.getByRole("dialog").getByRole("option", { name: /by-keyboard/ }).first()).toBeVisible();
  await admin.keyboard.press("Enter");
  await expect(admin).toHaveURL(new RegExp(`/console/s/${made.id}`));
  await expect(admin.getByRole("heading", { level: 1 })).toContainText("by-keyboard");
  await admin.keyboard.press("Escape");
  // The second key must follow within a certain time.
  await pressUntil(
    async () => {
      await admin.keyboard.press("g");
      await admin.keyboard.press("r");
    },
    () => expect(admin).toHaveURL(/\/console\/record/, { timeout: 3000 * slowness }),
  );
  const { entries } = (await server.request("GET", `/v1/record?sandbox=${made.id}`)) as { entries: { seq: number; kind: string }[] };
  const command = entries.find((e) => e.kind === "command.started");
  await server.request("DELETE", `/v1/sandboxes/${made.id}`);
  await admin.goto(`${server.base}/console/record/${command?.seq}`);
  await expect(admin.getByRole("complementary", { name: `Entry ${command?.seq}` })).toContainText("for-the-log");
});
