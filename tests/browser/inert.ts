import { expect, type Page } from "@playwright/test";

/** Expects that no text of the page ran code, became a link or changed the reading order. */
export async function expectInert(page: Page): Promise<void> {
  expect(await page.evaluate(() => (window as { pwned?: number }).pwned)).toBeUndefined();
  const text = await page.evaluate(() => document.body.innerText);
  // eslint-disable-next-line no-control-regex
  expect(text).not.toMatch(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]/);
  expect(await page.locator("img[src='x']").count()).toBe(0);
  expect(await page.locator("a[href*='evil.example']").count()).toBe(0);
}
