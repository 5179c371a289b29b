import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, test } from 'node:test'

import { bootId, createFiles, readHolder, readHolderQuickly, startHolder, letTimePass, requireRightTime, requireSameMemory, stateOf, tree } from './state.mjs'
import { control, eventually, full, newest, port, rejects, withSdk } from './support.mjs'

withSdk('pause and resume', (sdk) => {
  const created = []
  const create = async (opts) => {
    const sandbox = await sdk.Sandbox.create({ timeoutMs: 300_000, ...opts })
    created.push(sandbox)
    return sandbox
  }
  after(() => Promise.all(created.map((s) => s.kill())))

  test('files, memory and a listening server survive a pause', async () => {
    const run = randomUUID()
    const sandbox = await create({ metadata: { run }, envs: { FROM_CREATE: 'yes' } })
    await createFiles(sandbox)
    const process = await startHolder(sandbox)
    const files = await tree(sandbox)
    const before = await readHolderQuickly(sandbox)

    const requestedAt = Date.now()
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.pause(), false)
    assert.equal(await sandbox.isRunning(), false)
    const paused = await sandbox.getInfo()
    assert.equal(paused.state, 'paused')
    assert.ok(paused.endAt > requestedAt - 1_000 && paused.endAt < Date.now() + 1_000, `paused at ${paused.endAt}`)
    const listed = async (state) => (await sdk.Sandbox.list({ query: { metadata: { run }, state } }).nextItems()).map((s) => s.state)
    assert.deepEqual(await listed(['paused']), ['paused'])
    assert.deepEqual(await listed(['running']), [])
    assert.deepEqual(await listed(undefined), ['paused'])
    for (const number of [49983, 49999, 8000]) {
      const response = await port(sandbox, number, '/health')
      assert.equal(response.status, 502)
      assert.deepEqual(await response.json(), { sandboxId: sandbox.sandboxId, message: 'The sandbox was not found', code: 502 })
    }
    await rejects(sandbox.commands.run('true'), sdk.SandboxError)
    await rejects(sandbox.setTimeout(1000), sdk.SandboxNotFoundError)
    await letTimePass()

    const resumed = Date.now()
    const again = await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 200_000 })
    assert.equal(again.sandboxId, sandbox.sandboxId)
    const info = await again.getInfo()
    assert.equal(info.state, 'running')
    assert.ok(info.endAt > resumed + 199_000 && info.endAt < Date.now() + 201_000, `it ends at ${info.endAt}`)
    const later = await readHolder(sandbox)
    requireSameMemory(before, later)
    assert.equal(later.host, before.host)
    await requireRightTime(sandbox, before)
    assert.equal(await tree(sandbox), files)
    assert.ok((await again.commands.list()).some((p) => p.pid === process.pid))
    assert.equal((await sandbox.commands.run('echo $FROM_CREATE')).stdout, 'yes\n')
    assert.deepEqual({ ...info.metadata }, { run })
  })

  test('a program continues where it was, and can be connected to', async () => {
    const sandbox = await create()
    const process = await sandbox.commands.run('i=0; while read line; do i=$((i+1)); echo "$i $line"; done', { background: true, stdin: true, timeoutMs: 0 })
    await sandbox.commands.sendStdin(process.pid, 'one\n')
    await eventually('it answers', () => process.stdout === '1 one\n')
    await sandbox.pause()
    const cut = await process.wait().then(() => undefined, (error) => error)
    // A cut stream is an error; an orderly end would have another message.
    assert.ok(cut instanceof sdk.TimeoutError, `${cut?.constructor.name}: ${cut?.message}`)
    assert.match(cut.message, /sandbox was killed or reached its end of life/)
    await sandbox.connect()
    const again = await sandbox.commands.connect(process.pid)
    await sandbox.commands.sendStdin(process.pid, 'two\n')
    await eventually('it answers again', () => again.stdout === '2 two\n')
    assert.equal(await again.kill(), true)
  })

  test('a pause without memory keeps only files', async () => {
    const sandbox = await create()
    await createFiles(sandbox)
    await startHolder(sandbox)
    const [files, boot] = [await tree(sandbox), await bootId(sandbox)]
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    assert.equal(await sandbox.pause({ keepMemory: false }), false)
    assert.equal(await stateOf(sdk, sandbox), 'paused')
    await sandbox.connect({ onResume: 'reboot' })
    assert.notEqual(await bootId(sandbox), boot)
    // Times are saved with a precision of one second.
    const rounded = (text) => text.replace(/ (\d+\.\d+) /g, (_, time) => ` ${Math.round(time)} `)
    assert.equal(rounded(await tree(sandbox)), rounded(files))
    assert.deepEqual(await sandbox.commands.list(), [])
    const response = await port(sandbox, 8000)
    assert.equal(response.status, 502)
    assert.match((await response.json()).message, /port is not open/)
  })

  // The older SDK does not have the option.
  const reboots = {
    ...(sdk === newest && { 'onResume: reboot': (sandbox) => sandbox.connect({ onResume: 'reboot' }) }),
    connect: (sandbox) => control('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { body: { timeout: 300, memory: false } }),
    'connect, v2': (sandbox) => control('POST', `/v2/sandboxes/${sandbox.sandboxId}/connect`, { body: { memory: false } }),
    resume: (sandbox) => control('POST', `/sandboxes/${sandbox.sandboxId}/resume`, { body: { timeout: 300, memory: false } }),
  }
  // All ways restore files by the same code, so make test compares every kind of file only once.
  const firstReboot = Object.keys(reboots)[0]
  for (const [name, reboot] of Object.entries(reboots)) {
    test(`a reboot leaves out saved memory: ${name}`, async () => {
      const sandbox = await create()
      if (full || name === firstReboot) await createFiles(sandbox)
      await startHolder(sandbox)
      const list = () => (full || name === firstReboot ? tree(sandbox) : sandbox.files.read('/home/user/holder.py'))
      const [files, boot] = [await list(), await bootId(sandbox)]
      assert.equal(await sandbox.pause(), true)
      const response = await reboot(sandbox)
      if (response.status) {
        assert.equal(response.status, 201)
        assert.equal((await response.json()).sandboxID, sandbox.sandboxId)
      }
      // The client object from before the pause has the token, which is still valid.
      const another = await bootId(sandbox)
      assert.notEqual(another, boot)
      const rounded = (text) => text.replace(/ (\d+\.\d+) /g, (_, time) => ` ${Math.round(time)} `)
      assert.equal(rounded(await list()), rounded(files))
      assert.deepEqual(await sandbox.commands.list(), [])
      assert.equal((await port(sandbox, 8000)).status, 502)
      // A running sandbox continues.
      const again = await reboot(sandbox)
      if (again.status) assert.equal(again.status, name === 'resume' ? 409 : 200)
      assert.equal(await bootId(sandbox), another)
      // The sandbox can be saved and resumed as usual.
      await sandbox.files.write('later', 'later')
      await sandbox.pause()
      await sandbox.connect()
      assert.equal(await bootId(sandbox), another)
      assert.equal(await sandbox.files.read('later'), 'later')
    })
  }

  test('a paused sandbox can be killed', async () => {
    const sandbox = await create()
    await sandbox.betaPause()
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    await rejects(sandbox.connect(), sdk.SandboxNotFoundError)
    await rejects(sandbox.pause(), sdk.SandboxNotFoundError)
    assert.equal(await sandbox.isRunning(), false)
  })

  test('concurrent connections resume once, and wait for a pause to end', async () => {
    const sandbox = await create()
    await sandbox.files.write('kept', 'kept')
    await sandbox.pause()
    const all = await Promise.all(Array.from({ length: 8 }, () => sdk.Sandbox.connect(sandbox.sandboxId)))
    for (const one of all) assert.equal(await one.files.read('kept'), 'kept')
    const codes = []
    for (let round = 0; round < 3; round++) {
      const pausing = sandbox.pause()
      await eventually('the sandbox is being paused', async () => (await stateOf(sdk, sandbox)) === 'paused')
      const response = await control('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { body: { timeout: 300 } })
      codes.push(response.status)
      await pausing
      assert.equal(await sandbox.files.read('kept'), 'kept')
    }
    assert.deepEqual(codes, [201, 201, 201])
  })

  test('resume and connect report whether the sandbox was paused', async () => {
    const sandbox = await create()
    const call = async (path, body) => (await control('POST', path.replace('%', sandbox.sandboxId), { body })).status
    assert.equal(await call('/sandboxes/%/resume', {}), 409)
    assert.equal(await call('/v2/sandboxes/%/connect'), 200)
    assert.equal(await call('/sandboxes/%/pause'), 204)
    assert.equal(await call('/sandboxes/%/pause'), 409)
    assert.equal(await call('/sandboxes/%/fork', {}), 409)
    assert.equal(await call('/sandboxes/%/snapshots', {}), 404)
    assert.equal(await call('/sandboxes/%/resume', { timeout: 60 }), 201)
    assert.equal(await call('/sandboxes/%/pause'), 204)
    assert.equal(await call('/v2/sandboxes/%/connect', {}), 201)
    assert.equal((await sandbox.commands.run('echo up')).stdout, 'up\n')
  })
})
