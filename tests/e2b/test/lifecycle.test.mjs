import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, test } from 'node:test'

import { control, eventually, withSdk, withSandbox, rejects, slowness } from './support.mjs'

const unknown = 'izzzzzzzzzzzzzzzzzzz'

withSandbox('one sandbox', (sdk, shared) => {
  test('info', async () => {
    const info = await shared.sandbox.getInfo()
    assert.equal(info.sandboxId, shared.sandbox.sandboxId)
    assert.match(info.sandboxId, /^i[a-z0-9]{19}$/)
    assert.match(info.templateId, /^[a-z0-9]{20}$/)
    assert.equal(info.name, 'base')
    assert.equal(info.state, 'running')
    assert.deepEqual({ ...info.metadata }, { kind: 'info', 'odd & key': 'välue=1' })
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 64)
    assert.equal(info.envdVersion, '0.6.13')
    assert.equal(info.allowInternetAccess, true)
    assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
    const left = info.endAt - Date.now()
    assert.ok(left > 200_000 && left <= 300_000, `${left} ms left`)
  })

  test('is running', async () => {
    assert.equal(await shared.sandbox.isRunning(), true)
  })

  test('the time limit, longer and shorter', async () => {
    for (const ms of [600_000, 100_000, 300_000]) {
      const before = Date.now()
      await shared.sandbox.setTimeout(ms)
      const { endAt } = await shared.sandbox.getInfo()
      assert.ok(endAt - Date.now() <= ms && endAt - before > ms - 1_000, `it ends at ${endAt}, set to ${ms} ms at ${new Date(before)}`)
    }
  })

  test('connecting never shortens the time limit', async () => {
    await shared.sandbox.setTimeout(300_000)
    const before = await shared.sandbox.getInfo()
    const second = await sdk.Sandbox.connect(shared.sandbox.sandboxId, { timeoutMs: 10_000 })
    assert.equal((await second.commands.run('echo same')).stdout, 'same\n')
    const after = await second.getInfo()
    assert.equal(after.endAt.getTime(), before.endAt.getTime())
    const requestedAt = Date.now()
    await sdk.Sandbox.connect(shared.sandbox.sandboxId, { timeoutMs: 900_000 })
    assert.ok((await shared.sandbox.getInfo()).endAt - requestedAt > 899_000)
    await shared.sandbox.setTimeout(300_000)
  })

  test('metrics', async () => {
    const [sample] = await eventually('a sample', async () => {
      const samples = await shared.sandbox.getMetrics()
      return samples.length > 0 && samples
    })
    assert.ok(sample.timestamp instanceof Date)
    assert.ok(sample.cpuCount >= 1)
    assert.ok(sample.memTotal > 0 && sample.memUsed >= 0 && sample.memUsed <= sample.memTotal)
    assert.ok(sample.diskTotal > 0)
    assert.deepEqual(await shared.sandbox.getMetrics({ start: new Date(Date.now() + 3600_000), end: new Date(Date.now() + 7200_000) }), [])
  })

  test('logs', async () => {
    for (const path of [`/sandboxes/${shared.sandbox.sandboxId}/logs`, `/v2/sandboxes/${shared.sandbox.sandboxId}/logs`]) {
      const response = await control('GET', path)
      assert.equal(response.status, 200)
      assert.ok((await response.json()).logs.length > 0, `${path} is empty`)
    }
  })

  test('unsupported options are errors', async () => {
    const { sandbox } = shared
    const text = /501: .*not supported by this server yet/
    await rejects(sandbox.updateNetwork({ egressProxy: { address: 'proxy.example.com:1080' } }), sdk.SandboxError, text)
    assert.equal(await sandbox.isRunning(), true)
  })
}, { metadata: { kind: 'info', 'odd & key': 'välue=1' } })

withSdk('ends', (sdk) => {
  test('kill', async () => {
    const sandbox = await sdk.Sandbox.create()
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    assert.equal(await sandbox.isRunning(), false)
    await rejects(sandbox.getInfo(), sdk.SandboxNotFoundError)
    await rejects(sandbox.setTimeout(1000), sdk.SandboxNotFoundError)
    await rejects(sandbox.commands.run('true'), sdk.SandboxError)
    await rejects(sdk.Sandbox.connect(sandbox.sandboxId), sdk.SandboxNotFoundError)
  })

  test('a sandbox that never existed', async () => {
    assert.equal(await sdk.Sandbox.kill(unknown), false)
    await rejects(sdk.Sandbox.getInfo(unknown), sdk.SandboxNotFoundError)
    await rejects(sdk.Sandbox.setTimeout(unknown, 1000), sdk.SandboxNotFoundError)
    await rejects(sdk.Sandbox.getMetrics(unknown), sdk.SandboxNotFoundError)
    await rejects(sdk.Sandbox.pause(unknown), sdk.SandboxNotFoundError)
  })

  test('a sandbox ends when its time runs out', async () => {
    // The lifetime counts from before the boot, which is slow on a busy machine. A lifetime that
    // was too short is doubled.
    let sandbox
    for (let timeoutMs = 3_000; !(await sandbox?.isRunning()); timeoutMs *= 2) {
      assert.ok(timeoutMs < 120_000 * slowness, 'no sandbox ran, however long its lifetime')
      // The creation fails if the sandbox ends before it is answered.
      sandbox = await sdk.Sandbox.create({ timeoutMs }).catch((error) => void console.log(`${timeoutMs} ms: ${error}`))
    }
    await eventually('the sandbox ends', async () => !(await sandbox.isRunning()))
    assert.equal(await sandbox.kill(), false)
  })

  test('a time limit of zero ends a sandbox', async () => {
    const sandbox = await sdk.Sandbox.create()
    await sandbox.setTimeout(0)
    await eventually('the sandbox ends', async () => !(await sandbox.isRunning()))
  })

  test('kill while commands, terminals and watches are open', async () => {
    const sandbox = await sdk.Sandbox.create()
    const command = await sandbox.commands.run('sleep 3000', { background: true, timeoutMs: 0 })
    let output = ''
    const running = sandbox.commands.run('echo started; sleep 3000', { timeoutMs: 0, onStdout: (text) => void (output += text) })
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData() {}, timeoutMs: 0 })
    let watch
    await sandbox.files.watchDir('/home/user', () => {}, { timeoutMs: 0, onExit: (error) => void (watch = { error }) })
    await eventually('the second command runs', () => output.includes('started'))
    const ends = [command.wait(), running, terminal.wait()].map((p) => p.then(() => undefined, (error) => error))
    // None of these calls has its own time limit.
    assert.equal(await sandbox.kill(), true)
    for (const error of await Promise.all(ends)) {
      assert.ok(error instanceof sdk.TimeoutError, `${error?.constructor.name}: ${error?.message}`)
    }
    await eventually('the watch ends', () => watch)
    assert.ok(watch.error, 'the watch ended without an error')
  })
})

withSdk('lists', (sdk) => {
  const run = randomUUID()
  const created = []
  after(() => Promise.all(created.map((s) => s.kill())))

  test('filters, order and pages', async () => {
    for (const n of ['1', '2', '3']) {
      created.push(await sdk.Sandbox.create({ metadata: { run, n, 'key & =': 'v%+ü' }, timeoutMs: 120_000 }))
    }
    const ids = created.map((s) => s.sandboxId)
    const all = async (opts) => {
      const found = []
      const pages = sdk.Sandbox.list(opts)
      while (pages.hasNext) found.push(...(await pages.nextItems()))
      return found.map((s) => s.sandboxId)
    }
    const mine = { metadata: { run } }
    assert.deepEqual(await all({ query: mine }), ids.toReversed())
    assert.deepEqual(await all({ query: mine, limit: 1 }), ids.toReversed())
    assert.deepEqual(await all({ query: { metadata: { run, n: '2' } } }), [ids[1]])
    assert.deepEqual(await all({ query: { metadata: { run, 'key & =': 'v%+ü' } } }), ids.toReversed())
    assert.deepEqual(await all({ query: { metadata: { run, n: '4' } } }), [])
    assert.deepEqual(await all({ query: { ...mine, state: ['running'] } }), ids.toReversed())
    assert.deepEqual(await all({ query: { ...mine, state: ['paused'] } }), [])

    const response = await control('GET', `/v2/sandboxes?order=asc&metadata=run%3D${run}`)
    assert.deepEqual((await response.json()).map((s) => s.sandboxID), ids)
    assert.ok(Number(response.headers.get('x-total-running')) >= 3)

    const [first] = await sdk.Sandbox.list({ query: mine, limit: 1 }).nextItems()
    assert.equal(first.sandboxId, ids[2])
    assert.equal(first.metadata.n, '3')
    assert.equal(first.state, 'running')
    assert.ok(first.startedAt instanceof Date)
  })

  test('the last page is recognised', async () => {
    const pages = sdk.Sandbox.list({ query: { metadata: { run } }, limit: 2 })
    assert.equal((await pages.nextItems()).length, 2)
    assert.equal(pages.hasNext, true)
    assert.equal((await pages.nextItems()).length, 1)
    assert.equal(pages.hasNext, false)
    await rejects(sdk.Sandbox.list({ nextToken: 'nonsense' }).nextItems(), sdk.SandboxError, /Invalid next token/)
  })
})
