import { expect, test } from "../fixtures";

test("a file is edited, its difference shown, and it is downloaded as bytes", async ({ admin, server }) => {
  const made = await server.create({ name: "files" });
  await server.exec(made.id, "mkdir -p /workspace && printf 'one\\ntwo\\n' > /workspace/notes.txt");
  await admin.goto(`${server.base}/console/s/${made.id}/files?path=/workspace`);
  await admin.getByText("notes.txt").first().click();
  await admin.getByRole("button", { name: "Edit" }).click();
  const editor = admin.getByRole("textbox", { name: /notes\.txt|contents|editor/i });
  await editor.click();
  await admin.keyboard.press("Control+End");
  await admin.keyboard.type("three");
  await admin.getByRole("button", { name: "Save", exact: true }).click();
  await expect
    .poll(async () => (await server.exec(made.id, "cat /workspace/notes.txt")).stdout)
    .toContain("three");

  // The page learns of the change after it happened, and shows its text as unsaved until then.
  await expect(admin.getByRole("button", { name: "Edit" })).toBeVisible();
  await admin.getByRole("link", { name: /changes|diff/i }).or(admin.getByRole("tab", { name: /changes|diff/i })).first().click();
  await expect(admin.getByText("notes.txt").first()).toBeVisible();
  await expect(admin.getByText("three").first()).toBeVisible();

  const file = await admin.request.get(`${server.base}/console/api/sandboxes/${made.id}/file?path=/workspace/notes.txt`);
  expect(file.headers()["content-disposition"]).toContain("attachment");
  expect(file.headers()["content-type"]).toBe("application/octet-stream");
  expect(await file.text()).toContain("three");
});
