import { readFileSync, readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";

// Source patterns that could turn text of a sandbox into markup or code. The page's content
// security policy stops most of them too; this test makes sure that the source does not contain
// them at all.
const forbidden: [string, RegExp][] = [
  ["markup from text", /dangerouslySetInnerHTML|\.(?:inner|outer)HTML\s*=(?!=)|insertAdjacentHTML|document\.write|createContextualFragment|parseFromString/],
  ["code from text", /\beval\s*\(|new\s+Function\s*\(|setTimeout\s*\(\s*["'`]|["'`]javascript:/],
  ["another origin", /\b(?:src|href|url)\s*[=(:]\s*["'`]https?:\/\//],
  ["a frame with rights", /allow-same-origin[^\n]*allow-scripts|allow-scripts[^\n]*allow-same-origin/],
];

// A preview has its own origin, which isPreview checks. Its storage is separate, and it cannot
// reach out of its frame.
const excepted: Record<string, string[]> = { "sandbox/ports/tab.tsx": ["a frame with rights"] };

function faults(text: string): string[] {
  return forbidden.filter(([, pattern]) => pattern.test(text)).map(([what]) => what);
}

describe("the source", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter(
    (name) => /\.(ts|tsx|css)$/.test(name) && !/\.test\.tsx?$/.test(name) && !name.endsWith("schema.d.ts"),
  );

  it("is checked completely", () => {
    expect(files.length).toBeGreaterThan(40);
  });

  it.each(files)("%s shows text only as text", (name) => {
    expect(faults(readFileSync(`src/${name}`, "utf8"))).toEqual(excepted[name] ?? []);
  });

  it.each([
    ["<p dangerouslySetInnerHTML={{ __html: name }} />", "markup from text"],
    ["element.innerHTML = name", "markup from text"],
    ["eval (code)", "code from text"],
    ["new Function(code)", "code from text"],
    ['<a href="javascript:x">', "code from text"],
    ['<img src="https://cdn.example/x.png">', "another origin"],
    ['sandbox="allow-scripts allow-same-origin"', "a frame with rights"],
  ])("reports %s", (text, what) => {
    expect(faults(text)).toEqual([what]);
  });

  it("has one script in the page, from its own file", () => {
    const page = readFileSync("index.html", "utf8");
    expect([...page.matchAll(/<script[^>]*>/g)].map((m) => m[0])).toEqual(['<script type="module" src="/src/main.tsx">']);
    expect(page).not.toMatch(/\son\w+=|<style|https?:/);
  });
});
