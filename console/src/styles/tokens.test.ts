import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const css = readFileSync("src/styles/tokens.css", "utf8");

function theme(name: "light" | "dark"): Map<string, string> {
  const at = css.indexOf(`[data-theme="${name}"]`);
  const block = css.slice(css.indexOf("{", at) + 1, css.indexOf("}", at));
  return new Map([...block.matchAll(/(--[\w-]+):\s*(#[0-9a-f]{6});/g)].map((m) => [m[1] ?? "", m[2] ?? ""]));
}

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((i) => {
    const c = Number.parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

const backgrounds = ["--bg", "--bg-raised", "--bg-sunken", "--bg-hover"];
const texts = ["--text", "--text-quiet", "--accent", "--ok", "--warn", "--bad", "--info"];
const pairs: [string, string][] = [
  ...backgrounds.flatMap((ground) => texts.map((text): [string, string] => [text, ground])),
  ["--ok", "--ok-bg"],
  ["--warn", "--warn-bg"],
  ["--bad", "--bad-bg"],
  ["--info", "--info-bg"],
  ["--accent", "--accent-bg"],
  ["--text", "--ok-bg"],
  ["--text", "--warn-bg"],
  ["--text", "--bad-bg"],
  ["--text", "--info-bg"],
  ["--text", "--accent-bg"],
  ["--accent-text", "--accent"],
  ["--bad-text", "--bad"],
];

describe.each(["light", "dark"] as const)("the %s theme", (name) => {
  const colours = theme(name);
  it.each(pairs)("has enough contrast for %s on %s", (text, ground) => {
    expect(contrast(colours.get(text) ?? "#808080", colours.get(ground) ?? "#808080")).toBeGreaterThanOrEqual(4.5);
  });
  it.each(["--bg", "--bg-raised"])("has enough contrast for the edge of a control on %s", (ground) => {
    expect(contrast(colours.get("--line-strong") ?? "#808080", colours.get(ground) ?? "#808080")).toBeGreaterThanOrEqual(3);
  });
});

it("computes contrast as WCAG does", () => {
  expect(contrast("#000000", "#ffffff")).toBeCloseTo(21, 5);
  expect(contrast("#777777", "#ffffff")).toBeCloseTo(4.48, 2);
});
