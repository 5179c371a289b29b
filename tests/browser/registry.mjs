// An npm registry with a few packages, whose texts an attacker chose where the protocol permits it.
import { createHash } from "node:crypto";
import { hostileText } from "./hostile.mjs";

const packages = {
  "good-package": { "1.0.0": "good content", "1.1.0": "newer content" },
  "denied-package": { "1.0.0": "denied content" },
  "hostile-package": { [`1.0.0-${hostileText}`]: "hostile content" },
};

/** Returns the body for a path of the registry, or null for any other path. */
export function registryAnswer(origin, path) {
  const [name, file] = decodeURIComponent(path.slice(1)).split("/-/");
  if (!Object.hasOwn(packages, name)) return null;
  const versions = Object.entries(packages[name]).map(([id, content], i) => ({ id, content, tarball: `/${name}/-/${name}-${i}.tgz` }));
  if (file !== undefined) return versions.find((v) => v.tarball === path)?.content ?? null;
  return JSON.stringify({
    name,
    versions: Object.fromEntries(
      versions.map(({ id, content, tarball }) => [id, { dist: { tarball: origin + tarball, integrity: `sha512-${createHash("sha512").update(content).digest("base64")}` } }]),
    ),
  });
}
