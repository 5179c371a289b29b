// Functions that the tests share: the SDK of this run, waiting, and requests without an SDK.
import assert from 'node:assert/strict'
import { after, before, describe } from 'node:test'

import * as newest from 'e2b'
import * as older from 'e2b-2-45'

for (const name of ['E2B_API_URL', 'E2B_SANDBOX_URL', 'E2B_API_KEY']) {
  if (!process.env[name]) {
    throw new Error(`${name} is not set: run tests/e2b/run.sh`)
  }
}

export const apiUrl = process.env.E2B_API_URL
export const sandboxUrl = process.env.E2B_SANDBOX_URL
export const apiKey = process.env.E2B_API_KEY

export { newest }

// The older generation is tested separately, in make test-full.
const { name, sdk } = process.env.CRANNOG_TEST_SDK === 'old' ? { name: 'e2b 2.45.0', sdk: older } : { name: 'e2b 2.51.0', sdk: newest }

// savesMemory is false if the server's engine saves files only.
export const savesMemory = process.env.CRANNOG_TEST_SAVES !== 'files'

// slowness is how much slower this machine is than the reference machine: see
// internal/testkit/hosttest.
export const slowness = Number(process.env.CRANNOG_TEST_SPEED ?? 1)
if (!(slowness >= 1 && Number.isInteger(slowness))) throw new Error(`CRANNOG_TEST_SPEED is ${process.env.CRANNOG_TEST_SPEED}, want a positive integer`)

// full is set for tests that are too long for each change: make test-long.
export const full = (process.env.CRANNOG_TEST_FULL ?? '') !== ''

// limit is the time after which a group of tests counts as hanging.
export const limit = 900_000 * slowness

// life is the timeout of a sandbox that a failed test leaves behind.
export const life = 3600_000

// withSdk defines a group of tests for the SDK generation of this run.
export function withSdk(subject, body) {
  describe(`${subject} (${name})`, { timeout: limit }, () => body(sdk))
}

// withSandbox defines a group of tests that share a sandbox.
export function withSandbox(subject, body, opts = {}) {
  withSdk(subject, (sdk) => {
    const shared = { sandbox: undefined }
    before(async () => {
      shared.sandbox = await sdk.Sandbox.create({ timeoutMs: 300_000, ...opts })
    })
    after(async () => {
      await shared.sandbox?.kill()
    })
    body(sdk, shared)
  })
}

// eventually polls until the condition returns a true value, and fails after a time limit.
export async function eventually(what, condition, withinMs = 120_000 * slowness) {
  const end = Date.now() + withinMs
  for (;;) {
    const got = await condition()
    if (got) return got
    assert.ok(Date.now() < end, `gave up waiting until ${what}`)
    await new Promise((done) => setTimeout(done, 25))
  }
}

// control calls the control plane without an SDK.
export function control(method, path, { body, key = apiKey, headers = {} } = {}) {
  return fetch(new URL(path, apiUrl), {
    method,
    headers: { ...(key ? { 'X-API-KEY': key } : {}), 'Content-Type': 'application/json', ...headers },
    body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  })
}

// port calls a port of a sandbox with headers.
export function port(sandbox, number, path = '/', init = {}) {
  return fetch(new URL(path, sandboxUrl), {
    ...init,
    headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(number), ...(init.headers ?? {}) },
  })
}

// rejects checks an error's class and text, and returns it.
export async function rejects(promise, type, text) {
  let error
  try {
    await promise
  } catch (e) {
    error = e
  }
  assert.ok(error, 'the call did not fail')
  assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}\nwanted ${type.name}`)
  if (text) assert.match(error.message, text)
  return error
}
