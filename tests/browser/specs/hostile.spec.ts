import { takeControl, expect, test } from "../fixtures";
import { marks, script } from "../hostile.mjs";
import { expectInert } from "../inert";

test("what a sandbox prints, names or returns is inert on every page", async ({ admin, server }) => {
  const dialogs: string[] = [];
  admin.on("dialog", (d) => {
    dialogs.push(d.message());
    void d.dismiss();
  });
  const popups: string[] = [];
  admin.context().on("page", (p) => popups.push(p.url()));
  const made = await server.create({ name: "hostile", metadata: { note: script, other: marks } });
  await server.request("POST", `/v1/sandboxes/${made.id}/exec`, { cmd: ["printf", "%s", script + marks] });
  await server.request("POST", `/v1/sandboxes/${made.id}/exec`, {
    cmd: ["sh", "-c", `mkdir -p /workspace && cd /workspace && touch "$1" "$2" && printf '%s' "$1" > page.html && printf '<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"/>' > image.svg`, "sh", script.replaceAll("/", "_"), marks.replaceAll("/", "_")],
  });
  await server.request("POST", `/v1/sandboxes/${made.id}/exec`, { cmd: ["sh", "-c", `setsid sh -c 'sleep 900; :' "$1" >/dev/null 2>&1 &`, "sh", script + marks] });
  for (const path of ["", `s/${made.id}/live`, `s/${made.id}/files?path=/workspace`, `s/${made.id}/processes`, `s/${made.id}/record`, "record"]) {
    await admin.goto(`${server.base}/console/${path}`);
    await expect(admin.getByRole("heading", { level: 1 })).toBeVisible();
    // Control: the sandbox's text is shown, as text.
    await expect(admin.getByText("window.pwned=1").filter({ visible: true }).first()).toBeVisible();
    await expectInert(admin);
  }
  for (const file of ["page.html", "image.svg"]) {
    await admin.goto(`${server.base}/console/s/${made.id}/files?path=/workspace`);
    await admin.getByText(file).first().click();
    await expect(admin.locator(".cm-content")).toContainText("window.pwned=1");
    await expectInert(admin);
  }
  expect(dialogs).toEqual([]);
  expect(popups).toEqual([]);
});

test("a terminal's sequences reach neither the clipboard nor the title nor a link", async ({ admin, server, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.base });
  const made = await server.create({ name: "sequences" });
  await admin.goto(`${server.base}/console/s/${made.id}/terminal`);
  await admin.evaluate(() => navigator.clipboard.writeText("clipboard text"));
  await expect(admin).toHaveTitle(/sequences/);
  const title = await admin.title();
  await takeControl(admin);
  await admin.keyboard.type(`printf '\\033]52;c;cHduZWQ=\\007\\033]0;pwned\\007\\033]8;;http://evil.example\\007click\\033]8;;\\007 end-of-it\\n'\n`);
  await expect(admin.locator(".xterm-rows, .xterm-accessibility-tree").first()).toContainText("click end-of-it");
  expect(await admin.evaluate(() => navigator.clipboard.readText())).toBe("clipboard text");
  expect(await admin.title()).toBe(title);
  await expectInert(admin);
});
