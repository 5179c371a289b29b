import createClient from "openapi-fetch";
import { ApiProblem, problemOf } from "./problem";
import type { components, paths } from "../../gen/schema";

/** Prefix of the console's own paths; the /v1 API is below it. */
export const base = "/console/api";

/** The types of the /v1 API by name: Schemas["Sandbox"]. */
export type Schemas = components["schemas"];

/** The client of the /v1 API, with the signed-in session. */
export const api = createClient<paths>({
  baseUrl: base,
  credentials: "same-origin",
  // fetch is looked up at each call, because a test may replace it.
  fetch: (request) => globalThis.fetch(request),
});

type Listener = () => void;
const signedOutListeners = new Set<Listener>();

/** Calls back when a response reports that the session has ended. */
export function onSignedOut(listener: Listener): () => void {
  signedOutListeners.add(listener);
  return () => signedOutListeners.delete(listener);
}

function checkSignedOut(status: number) {
  if (status === 401) for (const listener of signedOutListeners) listener();
}

api.use({
  onRequest({ request }) {
    // Cross-site request forgery: the server accepts unsafe requests only as JSON, which a form of
    // another site cannot send. A request without a body would have no content type.
    if (request.method !== "GET" && !request.headers.has("Content-Type")) {
      request.headers.set("Content-Type", "application/json");
    }
    return request;
  },
  onResponse({ response }) {
    checkSignedOut(response.status);
  },
});

/** Returns the data of a response of api, or throws an ApiProblem. */
export async function unwrap<T>(
  answer: Promise<{ data?: T; error?: unknown; response: Response }>,
): Promise<Exclude<T, undefined>> {
  const { data, error, response } = await answer;
  if (!response.ok) throw problemOf(response.status, error);
  return data as Exclude<T, undefined>;
}

/** Calls one of the console's own paths with JSON; throws an ApiProblem. */
export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const request: RequestInit = { method, credentials: "same-origin" };
  if (signal) request.signal = signal;
  if (method !== "GET") request.headers = { "Content-Type": "application/json" };
  if (body !== undefined) request.body = JSON.stringify(body);
  const response = await fetch(base + path, request);
  return read<T>(response);
}

/** Returns the content of a response of the console's own paths, or throws an ApiProblem. */
export async function read<T>(response: Response): Promise<T> {
  checkSignedOut(response.status);
  return parseResponse<T>(response);
}

/** Like read, for a response whose 401 does not mean that the session has ended. */
export async function parseResponse<T>(response: Response): Promise<T> {
  const text = await response.text();
  let value: unknown = text;
  if (/\bjson\b/.test(response.headers.get("Content-Type") ?? "") && text !== "") {
    try {
      value = JSON.parse(text);
    } catch {
      throw new ApiProblem(response.status, "answer_invalid", "The server's response cannot be read.");
    }
  }
  if (!response.ok) throw problemOf(response.status, value);
  return value as T;
}
