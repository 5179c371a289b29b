/** The part of an error response's body that the console uses. */
interface Body {
  code?: unknown;
  title?: unknown;
  detail?: unknown;
  hint?: unknown;
}

/** An error with the server's text. */
export class ApiProblem extends Error {
  readonly status: number;
  /** Stable name, such as scope_too_small; "network" if no response came. */
  readonly code: string;
  readonly text: string;
  readonly hint: string;

  constructor(status: number, code: string, text: string, hint = "") {
    super(text);
    this.name = "ApiProblem";
    this.status = status;
    this.code = code;
    this.text = text;
    this.hint = hint;
  }
}

/** Converts the body of an unsuccessful response. */
export function problemOf(status: number, body: unknown): ApiProblem {
  const b: Body = typeof body === "object" && body !== null ? body : {};
  const textOf = (v: unknown) => (typeof v === "string" ? v : "");
  const text = textOf(b.detail) || textOf(b.title) || (typeof body === "string" && body.length < 400 ? body : "");
  return new ApiProblem(status, textOf(b.code) || `status_${status}`, text || `The server answered ${status}.`, textOf(b.hint));
}

/** Converts anything thrown to an ApiProblem. */
export function asProblem(thrown: unknown): ApiProblem {
  if (thrown instanceof ApiProblem) return thrown;
  if (thrown instanceof TypeError && /fetch|network|load/i.test(thrown.message)) {
    return new ApiProblem(0, "network", "The server cannot be reached.", "It may have been stopped. The data on the page may be old.");
  }
  return new ApiProblem(0, "console", thrown instanceof Error ? thrown.message : String(thrown));
}
