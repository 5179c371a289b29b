import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, test } from 'node:test'

import { createFiles, readHolder, readHolderQuickly, startHolder, letTimePass, requireRightTime, requireSameMemory, tree } from './state.mjs'
import { control, withSdk, port, rejects } from './support.mjs'

const unknown = 'izzzzzzzzzzzzzzzzzzz'

withSdk('snapshots', (sdk) => {
  const created = []
  const killAtEnd = (sandbox) => {
    created.push(sandbox)
    return sandbox
  }
  const create = async (template = 'base') => killAtEnd(await sdk.Sandbox.create(template, { timeoutMs: 300_000 }))
  const all = async (opts) => {
    const found = []
    const pages = sdk.Sandbox.listSnapshots(opts)
    while (pages.hasNext) found.push(...(await pages.nextItems()))
    return found
  }
  after(() => Promise.all(created.map((s) => s.kill())))

  test("a sandbox from a snapshot has the snapshot's files, memory and server", async () => {
    const source = await create()
    await createFiles(source)
    await startHolder(source)
    const files = await tree(source)
    const before = await readHolderQuickly(source)
    const snapshot = await source.createSnapshot()
    assert.ok(snapshot.snapshotId)
    assert.deepEqual(snapshot.names, [])

    // The source continues; its later changes do not affect the copy.
    const continued = await readHolder(source)
    requireSameMemory(before, continued)
    await source.files.write('/home/user/later', 'of the source')
    await letTimePass()

    const copy = await create(snapshot.snapshotId)
    assert.notEqual(copy.sandboxId, source.sandboxId)
    const inCopy = await readHolder(copy)
    requireSameMemory(before, inCopy)
    assert.equal(await tree(copy), files)
    assert.notEqual(inCopy.random, continued.random)
    assert.notEqual(inCopy.boot, before.boot)
    assert.notEqual(inCopy.host, before.host)
    if (before.machine) assert.notEqual(inCopy.machine, before.machine)
    await requireRightTime(copy, before)

    // The token of one sandbox is not valid for the other.
    const token = (sandbox) => ({ headers: { 'X-Access-Token': sandbox.envdAccessToken ?? '' } })
    const info = (sandbox) => control('GET', `/sandboxes/${sandbox.sandboxId}`).then((r) => r.json())
    const [a, b] = [await info(source), await info(copy)]
    assert.notEqual(a.envdAccessToken, b.envdAccessToken)
    const envs = (sandbox, with_) => port(sandbox, 49983, '/envs', token({ envdAccessToken: with_ })).then((r) => r.status)
    assert.equal(await envs(source, a.envdAccessToken), 200)
    assert.equal(await envs(copy, b.envdAccessToken), 200)
    assert.equal(await envs(source, b.envdAccessToken), 401)
    assert.equal(await envs(copy, a.envdAccessToken), 401)

    // A snapshot outlives its source.
    await source.kill()
    requireSameMemory(before, await readHolder(await create(snapshot.snapshotId)))
    assert.equal(await sdk.Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    assert.equal(await sdk.Sandbox.deleteSnapshot(snapshot.snapshotId), false)
    await rejects(create(snapshot.snapshotId), sdk.SandboxError, /404/)
    assert.equal((await readHolder(copy)).sum, before.sum)
  })

  test('names, lists and pages', async () => {
    const name = `n-${randomUUID()}`
    const [first, second] = [await create(), await create()]
    await first.files.write('which', 'older')
    const older = await first.createSnapshot({ name })
    await first.files.write('which', 'newer')
    const newer = await first.createSnapshot({ name })
    const other = await second.createSnapshot()
    assert.equal(newer.names.length, 1)
    assert.ok(newer.names[0].includes(name))
    assert.equal(await (await create(name)).files.read('which'), 'newer')
    assert.equal(await (await create(older.snapshotId)).files.read('which'), 'older')

    const ids = async (opts) => (await all(opts)).map((s) => s.snapshotId)
    assert.deepEqual(await ids({ sandboxId: first.sandboxId }), [newer.snapshotId, older.snapshotId])
    assert.deepEqual(await ids({ sandboxId: first.sandboxId, limit: 1 }), [newer.snapshotId, older.snapshotId])
    assert.deepEqual(await ids({ sandboxId: second.sandboxId }), [other.snapshotId])
    assert.ok((await ids({ name })).includes(newer.snapshotId))
    assert.ok(!(await ids({ name })).includes(other.snapshotId))
    assert.deepEqual(await ids({ sandboxId: unknown }), [])
    for (const s of [older, newer, other]) assert.equal(await sdk.Sandbox.deleteSnapshot(s.snapshotId), true)
    assert.deepEqual(await ids({ sandboxId: first.sandboxId }), [])
    await rejects(sdk.Sandbox.listSnapshots({ nextToken: 'nonsense' }).nextItems(), sdk.SandboxError, /Invalid next token/)
    await rejects(sdk.Sandbox.createSnapshot(unknown), sdk.SandboxNotFoundError)
  })
})

withSdk('fork', (sdk) => {
  const created = []
  after(() => Promise.all(created.map((s) => s.kill())))

  test('copies have their own identity and the same state', async () => {
    const source = await sdk.Sandbox.create({ timeoutMs: 300_000, envs: { FROM_CREATE: 'yes' } })
    created.push(source)
    await createFiles(source)
    await startHolder(source)
    const files = await tree(source)
    const before = await readHolder(source)
    const end = (await source.getInfo()).endAt
    const copies = await source.fork({ count: 3, timeoutMs: 120_000 })
    assert.equal(copies.length, 3)
    for (const copy of copies) {
      if (copy instanceof Error) throw copy
      created.push(copy)
    }
    assert.equal((await source.getInfo()).endAt.getTime(), end.getTime())
    const seen = await Promise.all([source, ...copies].map(readHolder))
    for (const one of seen) requireSameMemory(before, one)
    for (const what of ['boot', 'host', 'random']) {
      assert.equal(new Set(seen.map((s) => s[what])).size, 4, `${what} is not each copy's own: ${seen.map((s) => s[what])}`)
    }
    assert.equal(new Set([source, ...copies].map((s) => s.sandboxId)).size, 4)
    for (const copy of copies) {
      assert.equal(await tree(copy), files)
      assert.equal((await copy.commands.run('echo $FROM_CREATE')).stdout, 'yes\n')
      const left = (await copy.getInfo()).endAt - Date.now()
      assert.ok(left > 60_000 && left <= 120_000, `${left} ms left`)
    }
    await copies[0].files.write('/home/user/mine', 'mine')
    assert.equal(await source.files.exists('/home/user/mine'), false)
    assert.equal(await copies[1].files.exists('/home/user/mine'), false)
  })

  test('forks that are refused', async () => {
    const source = await sdk.Sandbox.create({ timeoutMs: 120_000 })
    created.push(source)
    await source.pause()
    await rejects(source.fork(), sdk.SandboxError, /409/)
    await rejects(sdk.Sandbox.fork(unknown), sdk.SandboxNotFoundError)
    await source.connect()
    await rejects(source.fork({ count: 101 }), sdk.SandboxError, /400: count must be between 1 and 100/)
  })
})
