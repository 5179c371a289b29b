import { describe, expect, it } from "vitest";
import { checkProof, leafHash, rootFrom, type Proof } from "./proof";

type Bytes = Uint8Array<ArrayBuffer>;

// A second implementation of the tree, written from the text of RFC 6962, to compare with.
async function nodeHash(a: Bytes, b: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array([1, ...a, ...b])));
}
const half = (n: number) => 2 ** Math.floor(Math.log2(n - 1));
async function rootOf(leaves: Bytes[]): Promise<Bytes> {
  if (leaves.length === 1) return leaves[0] as Bytes;
  const k = half(leaves.length);
  return nodeHash(await rootOf(leaves.slice(0, k)), await rootOf(leaves.slice(k)));
}
async function pathOf(m: number, leaves: Bytes[]): Promise<Bytes[]> {
  if (leaves.length === 1) return [];
  const k = half(leaves.length);
  return m < k
    ? [...(await pathOf(m, leaves.slice(0, k))), await rootOf(leaves.slice(k))]
    : [...(await pathOf(m - k, leaves.slice(k))), await rootOf(leaves.slice(0, k))];
}
const base64 = (b: Bytes) => btoa(String.fromCharCode(...b));

async function signedProof(seq: number, size: number): Promise<Proof> {
  const lines = Array.from({ length: size }, (_, i) => JSON.stringify({ seq: i, kind: "exec" }));
  const leaves = await Promise.all(lines.map(leafHash));
  const pair = (await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"])) as CryptoKeyPair;
  const pub = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const root = base64(await rootOf(leaves));
  const body = `crannog/test\n${size}\n${root}\n`;
  const signature = new Uint8Array(await crypto.subtle.sign("Ed25519", pair.privateKey, new TextEncoder().encode(body)));
  return {
    entry: lines[seq] ?? "",
    seq,
    hashes: (await pathOf(seq, leaves)).map(base64),
    checkpoint: { size, root, note: `${body}\n— crannog/test ${base64(new Uint8Array([1, 2, 3, 4, ...signature]))}\n` },
    key: `crannog/test+01020304+${base64(new Uint8Array([1, ...pub]))}`,
  };
}

describe("inclusion", () => {
  it("verifies for every entry of trees of every shape, and for no other", async () => {
    for (let size = 1; size <= 17; size++) {
      const leaves = await Promise.all(Array.from({ length: size }, (_, i) => leafHash(`line ${i}`)));
      const root = base64(await rootOf(leaves));
      for (let seq = 0; seq < size; seq++) {
        const path = await pathOf(seq, leaves);
        const found = await rootFrom(leaves[seq] as Bytes, seq, size, path);
        expect(found && base64(found)).toBe(root);
        const wrong = await rootFrom(await leafHash("another"), seq, size, path);
        expect(wrong && base64(wrong)).not.toBe(root);
        expect(await rootFrom(leaves[seq] as Bytes, seq, size, [...path, leaves[0] as Bytes])).toBeNull();
        if (path.length > 0) expect(await rootFrom(leaves[seq] as Bytes, seq, size, path.slice(1))).toBeNull();
      }
    }
  });

  it("fails for an index outside the tree", async () => {
    expect(await rootFrom(await leafHash("x"), 3, 3, [])).toBeNull();
    expect(await rootFrom(await leafHash("x"), -1, 3, [])).toBeNull();
  });
});

describe("a proof", () => {
  it("verifies unchanged", async () => {
    expect(await checkProof(await signedProof(5, 11))).toMatchObject({ included: true, signed: true });
  });

  it("fails when any covered byte is flipped", async () => {
    const good = await signedProof(5, 11);
    const other = await signedProof(5, 11);
    expect(await checkProof({ ...good, entry: good.entry.replace("exec", "exit") })).toMatchObject({ included: false });
    expect(await checkProof({ ...good, seq: 4 })).toMatchObject({ included: false });
    expect(await checkProof({ ...good, hashes: (good.hashes ?? []).slice(1) })).toMatchObject({ included: false });
    expect(await checkProof({ ...good, checkpoint: { ...good.checkpoint, size: 12 } })).toMatchObject({ included: false });
    expect(await checkProof({ ...good, key: other.key })).toMatchObject({ signed: false });
    expect(await checkProof({ ...good, checkpoint: { ...good.checkpoint, note: good.checkpoint.note.replace("— crannog/test", "— someone") } })).toMatchObject({ signed: false });
    expect(await checkProof({ ...good, hashes: ["%"] })).toMatchObject({ included: false });
    expect(await checkProof({ ...good, entry: "no json" })).toMatchObject({ included: false });
  });
});
