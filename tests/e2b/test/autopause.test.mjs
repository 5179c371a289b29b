import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, test } from 'node:test'

import { bootId, readHolder, startHolder, requireSameMemory, stateOf } from './state.mjs'
import { eventually, withSdk, life, port, sandboxUrl } from './support.mjs'

withSdk('auto-pause and auto-resume', (sdk) => {
  const created = []
  const create = async (opts) => {
    const sandbox = await sdk.Sandbox.create(opts)
    created.push(sandbox)
    return sandbox
  }
  after(() => Promise.all(created.map((s) => s.kill())))
  const awaitPaused = (sandbox) => eventually('the sandbox is paused', async () => (await stateOf(sdk, sandbox)) === 'paused')

  test('a sandbox is paused when its time runs out', async () => {
    const sandbox = await create({ timeoutMs: life, lifecycle: { onTimeout: 'pause' } })
    assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    await startHolder(sandbox)
    const before = await readHolder(sandbox)
    await sandbox.setTimeout(1_000)
    await awaitPaused(sandbox)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal((await port(sandbox, 8000)).status, 502)
    await sandbox.connect({ timeoutMs: life })
    requireSameMemory(before, await readHolder(sandbox))
  })

  test('a sandbox that was paused without memory boots again', async () => {
    const sandbox = await create({ timeoutMs: life, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
    await sandbox.files.write('kept', 'kept')
    const boot = await bootId(sandbox)
    await sandbox.setTimeout(1_000)
    await awaitPaused(sandbox)
    await sandbox.connect({ timeoutMs: life })
    assert.equal(await sandbox.files.read('kept'), 'kept')
    assert.notEqual(await bootId(sandbox), boot)
  })

  test('a request resumes a sandbox and is served', async () => {
    const sandbox = await create({ timeoutMs: life, lifecycle: { onTimeout: 'pause', autoResume: true } })
    assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
    await startHolder(sandbox)
    const before = await readHolder(sandbox)
    await sandbox.setTimeout(1_000)
    await awaitPaused(sandbox)

    const body = randomBytes(1 << 20)
    const requestedAt = Date.now()
    const response = await port(sandbox, 8000, '/echo', { method: 'POST', body })
    const answer = Buffer.from(await response.arrayBuffer())
    assert.equal(response.status, 200, answer.subarray(0, 500).toString())
    assert.deepEqual(answer, body)
    requireSameMemory(before, await readHolder(sandbox))
    const info = await sandbox.getInfo()
    assert.equal(info.state, 'running')
    assert.ok(info.endAt - requestedAt > 299_000, `the resumed sandbox ends at ${info.endAt}`)

    // Concurrent calls of the SDK share one resumption.
    await sandbox.pause()
    const outputs = await Promise.all(Array.from({ length: 10 }, (_, i) => sandbox.commands.run(`echo ${i}`)))
    assert.deepEqual(outputs.map((o) => o.stdout), Array.from({ length: 10 }, (_, i) => `${i}\n`))
    await sandbox.pause()
    assert.equal(await sandbox.isRunning(), true)
  })

  test('a request without a token does not resume a sandbox', async () => {
    const sandbox = await create({
      timeoutMs: life, lifecycle: { onTimeout: 'pause', autoResume: true }, network: { allowPublicTraffic: false },
    })
    await sandbox.files.write('a.txt', 'a')
    const signed = await sandbox.downloadUrl('a.txt')
    await sandbox.pause()
    assert.equal((await port(sandbox, 49983, '/health')).status, 502)
    assert.equal((await port(sandbox, 49983, '/envs', { headers: { 'X-Access-Token': 'wrong' } })).status, 502)
    assert.equal((await port(sandbox, 8000)).status, 403)
    assert.equal((await fetch(signed.replace(/v1_[^&]*/, 'v1_wrong'))).status, 401)
    assert.equal(await stateOf(sdk, sandbox), 'paused')
    assert.ok(signed.startsWith(sandboxUrl))
    assert.equal(await (await fetch(signed)).text(), 'a')
    assert.equal(await stateOf(sdk, sandbox), 'running')
  })
})
