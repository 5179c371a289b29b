// Verifies a proof in the browser, without trusting the server's verdict: the inclusion proof of
// RFC 6962, and the signature of the tree head.

/** The response of GET /v1/record/{seq}/proof. */
export interface Proof {
  entry: string;
  seq: number;
  hashes: readonly string[] | null;
  checkpoint: { size: number; root: string; note: string };
  key: string;
}

export interface CheckedProof {
  /** The entry is in the tree of the signed tree head; null if the browser cannot check. */
  included: boolean | null;
  /** The tree head is signed by the key; null if the browser cannot check. */
  signed: boolean | null;
  text: string;
}

type Bytes = Uint8Array<ArrayBuffer>;

const bytesOf = (base64: string): Bytes => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const utf8 = (text: string): Bytes => new TextEncoder().encode(text) as Bytes;

async function sha256(...parts: Bytes[]): Promise<Bytes> {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", all));
}

const leafPrefix = new Uint8Array([0]);
const nodePrefix = new Uint8Array([1]);

/** leafHash returns the hash of one line. */
export function leafHash(line: string): Promise<Bytes> {
  return sha256(leafPrefix, utf8(line));
}

/**
 * rootFrom returns the root that results from a leaf and its proof, or null if the proof has the
 * wrong length.
 */
export async function rootFrom(leaf: Bytes, seq: number, size: number, hashes: readonly Bytes[]): Promise<Bytes | null> {
  if (!(seq >= 0 && seq < size)) return null;
  let node = leaf;
  let index = seq;
  let last = size - 1;
  for (const h of hashes) {
    if (last === 0) return null;
    if (index % 2 === 1 || index === last) {
      node = await sha256(nodePrefix, h, node);
      while (index % 2 === 0 && index !== 0) {
        index = Math.floor(index / 2);
        last = Math.floor(last / 2);
      }
    } else {
      node = await sha256(nodePrefix, node, h);
    }
    index = Math.floor(index / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? node : null;
}

const equal = (a: Bytes, b: Bytes) => a.length === b.length && a.every((v, i) => v === b[i]);

/** checkProof never throws: an unreadable proof is not valid. */
export async function checkProof(p: Proof): Promise<CheckedProof> {
  // Browsers offer these functions only on HTTPS pages and on loopback addresses.
  if (!globalThis.crypto?.subtle) {
    return { included: null, signed: null, text: "This browser cannot check proofs over plain HTTP. Download the proof and check it with crannog audit prove --check." };
  }
  try {
    const treeHead = treeHeadOf(p.checkpoint.note);
    if (treeHead.size !== p.checkpoint.size || treeHead.root !== p.checkpoint.root) {
      return { included: false, signed: false, text: "The proof does not match its signed tree head." };
    }
    if ((JSON.parse(p.entry) as { seq?: unknown }).seq !== p.seq) {
      return { included: false, signed: false, text: "The proof belongs to another entry." };
    }
    const root = await rootFrom(await leafHash(p.entry), p.seq, treeHead.size, (p.hashes ?? []).map(bytesOf));
    if (root === null || !equal(root, bytesOf(treeHead.root))) {
      return { included: false, signed: null, text: "The entry is not in the audit log of the signed tree head." };
    }
    const signed = await isSigned(p.checkpoint.note, p.key);
    return { included: true, signed, text: textFor(signed) };
  } catch {
    return { included: false, signed: null, text: "The proof cannot be read." };
  }
}

function textFor(signed: boolean | null): string {
  if (signed === null) return "The entry is in the audit log of the tree head. This browser cannot check the signature.";
  if (!signed) return "The tree head is not signed by the key of the proof.";
  return "The entry is in the audit log of the tree head, which is signed by the key below.";
}

function treeHeadOf(note: string): { size: number; root: string } {
  const [, size, root] = note.split("\n");
  if (!size || !/^\d+$/.test(size) || !root) throw new Error("not a signed tree head");
  return { size: Number(size), root };
}

/** isSigned checks a signed note with an Ed25519 verifier key. */
export async function isSigned(note: string, key: string): Promise<boolean | null> {
  const [name, id, ...rest] = key.split("+");
  const raw = bytesOf(rest.join("+"));
  if (!name || !id || raw.length !== 33 || raw[0] !== 1) return false;
  const end = note.lastIndexOf("\n\n");
  if (end < 0) return false;
  let verifier: CryptoKey;
  try {
    verifier = await crypto.subtle.importKey("raw", raw.slice(1), "Ed25519", false, ["verify"]);
  } catch {
    return null; // an older browser
  }
  for (const line of note.slice(end + 2).split("\n")) {
    const [dash, signer, signature] = line.split(" ");
    if (dash !== "—" || signer !== name || !signature) continue;
    const bytes = bytesOf(signature);
    const keyID = [...bytes.slice(0, 4)].map((b) => b.toString(16).padStart(2, "0")).join("");
    if (keyID !== id) continue;
    if (await crypto.subtle.verify("Ed25519", verifier, bytes.slice(4), utf8(note.slice(0, end + 1)))) return true;
  }
  return false;
}
