// Parses lines of JSON from a stream of bytes.

/** LineReader joins lines from pieces that may end anywhere. */
export class LineReader<T> {
  private rest = "";
  private readonly decoder = new TextDecoder();

  /** push returns the values of the complete lines. A line that is not JSON is an error. */
  push(bytes: Uint8Array): T[] {
    return this.lines(this.decoder.decode(bytes, { stream: true }));
  }

  /** end returns the rest without a newline. */
  end(): T[] {
    return this.lines(`${this.decoder.decode()}\n`);
  }

  private lines(text: string): T[] {
    this.rest += text;
    const parts = this.rest.split("\n");
    this.rest = parts.pop() ?? "";
    return parts.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as T);
  }
}

/** readLines calls back for each line of a body until it ends. */
export async function readLines<T>(body: ReadableStream<Uint8Array>, each: (value: T) => void): Promise<void> {
  const reader = body.getReader();
  const lines = new LineReader<T>();
  for (;;) {
    const { done, value } = await reader.read();
    for (const v of value ? lines.push(value) : []) each(v);
    if (done) break;
  }
  for (const v of lines.end()) each(v);
}
