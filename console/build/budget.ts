import { gzipSync } from "node:zlib";
import type { Plugin, Rollup } from "vite";

/** The largest compressed size of the first page, in bytes. */
const maxBytes = 200_000;
/** The module of the first page. */
const firstPage = /\/src\/fleet\/page\.tsx$/;

/**
 * Prints the size of everything that a browser fetches before it shows the fleet, and fails above
 * the limit. Without a limit the page would grow with each change.
 */
export function budget(): Plugin {
  return {
    name: "crannog-budget",
    apply: "build",
    writeBundle: {
      order: "post",
      handler(_options, bundle) {
        const needed = new Set<string>(["index.html"]);
        const walk = (name: string) => {
          const file = bundle[name];
          if (!file || needed.has(name)) return;
          needed.add(name);
          if (file.type !== "chunk") return;
          for (const css of file.viteMetadata?.importedCss ?? []) needed.add(css);
          for (const other of file.imports) walk(other);
        };
        for (const file of Object.values(bundle)) {
          if (file.type === "chunk" && (file.isEntry || firstPage.test(file.facadeModuleId ?? ""))) walk(file.fileName);
        }
        let sum = 0;
        for (const name of needed) sum += size(bundle[name]);
        if (process.env['CONSOLE_SIZES']) for (const name of [...needed].sort()) process.stdout.write(`${String(size(bundle[name])).padStart(8)} ${name}\n`);
        const kB = (n: number) => `${(n / 1000).toFixed(1)} kB`;
        // Not through Vite's log, of which make shows only warnings.
        process.stdout.write(`console: the first page is ${kB(sum)} compressed, of at most ${kB(maxBytes)}\n`);
        if (sum > maxBytes) this.error(`the first page costs ${kB(sum)}, above ${kB(maxBytes)}: ${[...needed].join(", ")}`);
      },
    },
  };
}

function size(file: Rollup.OutputAsset | Rollup.OutputChunk | undefined): number {
  if (!file) return 0;
  return gzipSync(file.type === "chunk" ? file.code : file.source, { level: 9 }).length;
}
