import { expect, test } from "../fixtures";

test("a snapshot is taken, rolled back to, and forked", async ({ admin, server }) => {
  const made = await server.create({ name: "states" });
  await server.exec(made.id, "echo before > /home/user/state");
  await admin.goto(`${server.base}/console/s/${made.id}/snapshots`);
  await admin.getByRole("button", { name: "Snapshot", exact: true }).first().click();
  const dialog = admin.getByRole("dialog");
  await dialog.getByRole("button", { name: "Take snapshot" }).click();
  await expect(dialog).toHaveCount(0);
  await expect
    .poll(async () => ((await server.request("GET", "/v1/snapshots")) as { snapshots: unknown[] }).snapshots.length)
    .toBe(1);
  await server.exec(made.id, "echo after > /home/user/state");

  await admin.getByRole("button", { name: "Roll back", exact: true }).first().click();
  // The dialog preselects the snapshot instead of the start.
  await expect(dialog.getByRole("radio").first()).toBeChecked();
  await dialog.getByRole("button", { name: "Roll back" }).click();
  await expect(admin.getByRole("dialog").or(admin.getByRole("alertdialog"))).toHaveCount(0); // commands fail until the rollback ends
  expect((await server.exec(made.id, "cat /home/user/state")).stdout.trim()).toBe("before");

  await admin.getByRole("button", { name: "Fork", exact: true }).first().click();
  expect(JSON.parse(await server.cli("ls", "--json"))).toHaveLength(1);
  await dialog.getByRole("button", { name: "Fork" }).click();
  await expect(dialog).toHaveCount(0);
  const forks = (JSON.parse(await server.cli("ls", "--json")) as { id: string }[]).filter((one) => one.id !== made.id);
  expect(forks).toHaveLength(1);
  await expect(admin).toHaveURL(new RegExp(`/console/s/${forks[0]?.id}`));
});
