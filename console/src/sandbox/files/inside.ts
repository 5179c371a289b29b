import { base, call, read } from "../../api/client";
import { inside } from "../queries";
import { maxImage } from "./filetype";
import type { FileEntry } from "./tree";

/** Reads and changes the files of a sandbox through the console's own paths. */
export class Files {
  readonly #id: string;

  constructor(id: string) {
    this.#id = id;
  }

  async list(path: string, signal?: AbortSignal): Promise<FileEntry[]> {
    const list = await call<{ entries: FileEntry[] | null }>("GET", this.#path("files", path), undefined, signal);
    return list.entries ?? [];
  }

  /** Reads the first bytes of a file, as many as the page can show. */
  async read(path: string, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const response = await fetch(this.url(path), { credentials: "same-origin", ...(signal ? { signal } : {}) });
    if (!response.ok || !response.body) return read<never>(response);
    const reader = response.body.getReader();
    const parts: Uint8Array[] = [];
    let size = 0;
    // A file may be endless, such as one that grows while it is read.
    while (size <= maxImage) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      size += value.length;
    }
    await reader.cancel();
    const all = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }

  async write(path: string, body: Blob | Uint8Array<ArrayBuffer>): Promise<void> {
    const headers = { "Content-Type": "application/octet-stream" };
    await read<unknown>(await fetch(this.url(path), { method: "PUT", credentials: "same-origin", headers, body }));
  }

  makeDirectory(path: string): Promise<unknown> {
    return call("POST", inside(this.#id, "dirs"), { path });
  }

  move(from: string, to: string): Promise<unknown> {
    return call("POST", inside(this.#id, "move"), { from, to });
  }

  remove(path: string): Promise<unknown> {
    return call("DELETE", this.#path("file", path));
  }

  /** The URL from which a browser downloads a file. The server always sends it as an attachment. */
  url(path: string): string {
    return base + this.#path("file", path);
  }

  #path(what: string, path: string): string {
    return `${inside(this.#id, what)}?path=${encodeURIComponent(path)}`;
  }
}
