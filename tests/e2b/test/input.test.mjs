import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { apiKey, control, withSdk, limit, rejects, sandboxUrl } from './support.mjs'

withSdk('bad input', (sdk) => {
  const create = (opts) => sdk.Sandbox.create({ ...opts })

  test('keys', async () => {
    const wrong = `e2b_${'0'.repeat(40)}`
    await rejects(create({ apiKey: wrong }), sdk.AuthenticationError)
    await rejects(sdk.Sandbox.list({ apiKey: wrong }).nextItems(), sdk.AuthenticationError)
    await rejects(sdk.Sandbox.getInfo('i0', { apiKey: wrong }), sdk.AuthenticationError)
  })

  test('templates', async () => {
    await rejects(sdk.Sandbox.create('no-such-template'), sdk.SandboxError, /404: template 'no-such-template' not found/)
    await rejects(sdk.Sandbox.create('base:v9'), sdk.SandboxError, /404: tag 'v9' does not exist for template 'base'/)
    await rejects(sdk.Sandbox.create('../../etc'), sdk.SandboxError, /400: /)
  })

  test('time limits', async () => {
    await rejects(create({ timeoutMs: 0 }), sdk.SandboxError, /400: Timeout must be greater than 0/)
    await rejects(create({ timeoutMs: -1000 }), sdk.SandboxError, /400: Timeout must be greater than 0/)
    await rejects(create({ timeoutMs: 1e15 }), sdk.SandboxError, /400: /)
  })

  test('unsupported options', async () => {
    const text = /501: .*not supported by this server yet/
    await rejects(create({ network: { egressProxy: { address: 'proxy.example.com:1080' } } }), sdk.SandboxError, text)
    await rejects(create({ volumeMounts: { '/v': 'volume' } }), Error, /404: .*there is no volume/)
    await rejects(create({ mcp: {} }), sdk.SandboxError)
  })
})

describe('bad requests', { timeout: limit }, () => {
  const requireError = async (status, code, ...args) => {
    const response = await control(...args)
    const body = await response.json()
    assert.equal(response.status, status, JSON.stringify(body))
    assert.equal(body.code, status)
    if (code) assert.equal(body.error_code, code)
    assert.ok(body.message)
  }

  test('every route gives the same answer without a key', async () => {
    const texts = new Set()
    for (const [method, path] of [['GET', '/sandboxes'], ['POST', '/v2/sandboxes'], ['GET', '/sandboxes/i0'], ['GET', '/no/such/route'], ['DELETE', '/templates/x']]) {
      for (const key of ['', 'x', apiKey.toUpperCase(), `${apiKey}0`]) {
        const response = await control(method, path, { key })
        assert.equal(response.status, 401)
        texts.add(await response.text())
      }
    }
    assert.equal(texts.size, 1)
  })

  test('bodies', async () => {
    await requireError(400, 'body_invalid', 'POST', '/v2/sandboxes', { body: '{"templateID":' })
    await requireError(400, 'body_invalid', 'POST', '/v2/sandboxes', { body: `{"mcp":${'['.repeat(500_000)}` })
    await requireError(400, 'field_invalid', 'POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 'long' } })
    await requireError(413, 'body_too_large', 'POST', '/v2/sandboxes', { body: { templateID: 'base', metadata: { k: 'x'.repeat(2 << 20) } } })
  })

  test('limits', async () => {
    for (const limits of [{ memoryMB: 0 }, { memoryMB: -1 }, { cpuMillis: 9e15 }, { memoryMB: 9e15 }, { pids: 9e15 }, { diskMB: 9e12 }]) {
      await requireError(400, undefined, 'POST', '/v2/sandboxes', { body: { templateID: 'base', limits } })
    }
  })

  test('access', async () => {
    const create = (fields) => ['POST', '/v2/sandboxes', { body: { templateID: 'base', ...fields } }]
    await requireError(400, 'field_misplaced', ...create({ level: 'strict' }))
    await requireError(400, 'field_misplaced', ...create({ policy: 'policy: v1' }))
    await requireError(400, 'access_twice', ...create({ access: { level: 'strict' }, network: { denyOut: ['0.0.0.0/0'] } }))
    await requireError(400, 'policy_invalid', ...create({ access: { level: 'king' } }))
    await requireError(400, 'net_invalid', ...create({ access: { net: 'lan' } }))
  })

  test('environments and metadata', async () => {
    for (const body of [{ envVars: { '': 'x' } }, { envVars: { 'A=B': 'x' } }, { envVars: { A: 'a\0b' } }]) {
      await requireError(400, undefined, 'POST', '/v2/sandboxes', { body: { templateID: 'base', ...body } })
    }
  })

  test('IDs', async () => {
    for (const id of ['..%2f..%2fetc', 'A', 'a_b', '%00', 'a-b-c']) {
      await requireError(400, 'sandbox_id_invalid', 'GET', `/sandboxes/${id}`)
    }
  })

  test('addresses of sandboxes', async () => {
    const at = (headers, path = '/') => fetch(new URL(path, sandboxUrl), { headers })
    const requireMessage = async (response, status, message) => {
      assert.equal(response.status, status)
      assert.equal((await response.json()).message, message)
    }
    await requireMessage(await at({ 'E2b-Sandbox-Id': 'i0' }), 400, 'missing header')
    await requireMessage(await at({ 'E2b-Sandbox-Id': 'i0', 'E2b-Sandbox-Port': 'x' }), 400, 'Invalid sandbox port')
    await requireMessage(await at({ 'E2b-Sandbox-Id': '../i0', 'E2b-Sandbox-Port': '80' }), 400, 'Invalid sandbox ID')
    await requireMessage(await at({ 'E2b-Sandbox-Id': 'i0', 'E2b-Sandbox-Port': '49983' }), 502, 'The sandbox was not found')
    await requireMessage(await at({}, '/files?path=/etc/passwd'), 401, 'missing signature query parameter')
    await requireMessage(await at({}, '/files?path=/etc/passwd&signature=v1_x'), 401, 'invalid signature')
  })
})
