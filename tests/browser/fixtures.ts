import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, type Page, test as base } from "@playwright/test";
import { slowness } from "./slowness";

export { expect } from "@playwright/test";

const binary = process.env["CRANNOG_BINARY"];
if (!binary) throw new Error("CRANNOG_BINARY is not set; start the tests with tests/browser/run.sh");

const run = promisify(execFile);

/** Scope of a console session. */
export type Scope = "viewer" | "operator" | "admin";

/** A sandbox, as `crannog run -d --json` and `inspect --json` print it. */
export interface CreatedSandbox {
  id: string;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("the operating system assigned no free port");
  return address.port;
}

/** A real server with its own state directory. */
export class Server {
  #child: ChildProcess | undefined;
  /** The key stays the same after a restart; without it, a server makes a new one. */
  readonly key = `e2b_${randomBytes(20).toString("hex")}`;

  private constructor(
    readonly dir: string,
    readonly port: number,
    readonly args: readonly string[],
  ) {}

  static async start(...args: string[]): Promise<Server> {
    const server = new Server(await mkdtemp(join(tmpdir(), "crannog-browser-")), await freePort(), args);
    await server.startProcess();
    return server;
  }

  get base(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get state(): string {
    return join(this.dir, "state");
  }

  /** Starts the server's process, on the same port as before. */
  async startProcess(): Promise<void> {
    const child = spawn(binary as string, ["serve", "--listen", `127.0.0.1:${this.port}`, "--state", this.state, ...this.args], {
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, E2B_API_KEY: this.key },
    });
    this.#child = child;
    let out = "";
    let log = "";
    child.stderr?.on("data", (chunk: Buffer) => (log = (log + chunk.toString()).slice(-20_000)));
    await new Promise<void>((resolve, reject) => {
      child.stdout?.on("data", (chunk: Buffer) => {
        out += chunk.toString();
        if (/^export E2B_API_KEY=\S+$/m.test(out)) resolve();
      });
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}:\n${out}${log}`)));
      child.once("error", reject);
    });
  }

  /** Ends the server as a crash would. */
  async crash(): Promise<void> {
    await this.#end("SIGKILL");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await gone;
  }

  /** Runs a command of crannog against this server. */
  async cli(...args: string[]): Promise<string> {
    const { stdout } = await run(binary as string, args, {
      env: { PATH: process.env["PATH"] ?? "", HOME: this.dir, CRANNOG_STATE: this.state },
      cwd: this.dir,
      maxBuffer: 16 << 20,
    });
    return stdout;
  }

  /** Creates a sandbox over the API, as an agent's program would. */
  async create(body: Record<string, unknown>): Promise<CreatedSandbox> {
    return (await this.request("POST", "/v1/sandboxes", body)) as CreatedSandbox;
  }

  /** Runs a shell line in a sandbox. */
  async exec(id: string, line: string): Promise<{ exit_code: number; stdout: string; stderr: string }> {
    return (await this.request("POST", `/v1/sandboxes/${id}/exec`, { cmd: ["sh", "-c", line] })) as never;
  }

  async request(method: string, path: string, body?: unknown): Promise<unknown> {
    const answer = await fetch(this.base + path, {
      method,
      headers: { "X-API-Key": this.key, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  /** Creates a link that signs in once. */
  async link(scope: Scope = "admin"): Promise<string> {
    const { url } = JSON.parse(await this.cli("console", "--scope", scope, "--no-open", "--json")) as { url: string };
    return url;
  }

  async signIn(page: Page, scope: Scope = "admin"): Promise<void> {
    await page.goto(await this.link(scope));
    // Wait for the navigation, which only a signed-in page has. Leaving the sign-in page while it
    // sends the token would lose the session.
    await page.getByRole("navigation", { name: "Console" }).waitFor();
    // The token is used up. It must not stay in the address, where others could see or copy it.
    await page.waitForURL((url) => !url.hash.includes("token"));
  }

  /** Ends all sandboxes. */
  async clear(): Promise<void> {
    await this.cli("rm", "--all", "--yes");
  }

  /** Reads a file of the state directory. */
  read(path: string): Promise<Buffer> {
    return readFile(join(this.state, path));
  }

  async stop(): Promise<void> {
    try {
      await this.clear();
    } finally {
      await this.#end("SIGTERM");
      await rm(this.dir, { recursive: true, force: true });
    }
  }
}

/** Opens a terminal on a sandbox's page, unless it is open, and takes control of it. */
export async function takeControl(page: Page, isOpen = false): Promise<void> {
  if (!isOpen) await page.getByRole("button", { name: "Open terminal" }).first().click();
  await page.getByRole("button", { name: "Take control" }).first().click();
  // The server drops input until it has given control.
  await expect(page.getByRole("button", { name: "Release control" })).toBeVisible();
  await page.locator(".xterm").first().click();
}

/**
 * Repeats a press until it has an effect. A card ignores presses shortly after it appeared, for a
 * time that depends on the machine.
 */
export async function pressUntil(press: () => Promise<void>, effect: () => Promise<void>): Promise<void> {
  await expect(async () => {
    await press();
    await effect();
  }).toPass({ intervals: [250], timeout: 120_000 * slowness });
}

/**
 * The tests of a worker share a server, which has no sandboxes at the start of each test. The page
 * `admin` is signed in as an administrator.
 */
export const test = base.extend<{ server: Server; admin: Page }, { shared: Server }>({
  shared: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.stop();
    },
    { scope: "worker", timeout: 240_000 * slowness },
  ],
  server: async ({ shared }, use) => {
    await use(shared);
    await shared.clear();
  },
  admin: async ({ page, server }, use) => {
    await server.signIn(page);
    await use(page);
  },
});
