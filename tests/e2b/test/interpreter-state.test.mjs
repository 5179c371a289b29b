import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'

import { Sandbox } from '@e2b/code-interpreter'

import { limit } from './support.mjs'

// keep creates a variable, a large array and an open file, and look prints them.
const keep = `
import hashlib, os, tempfile
secret = os.urandom(16).hex()
big = bytearray(os.urandom(1 << 20)) * 32
log = tempfile.TemporaryFile()
_ = log.write(b"written before")
`
const look = 'log.seek(0); print(secret, hashlib.sha256(big).hexdigest(), len(big), log.read().decode(), os.getpid())'

describe('the state of @e2b/code-interpreter 2.8.0', { timeout: 2 * limit }, () => {
  const created = []
  after(() => Promise.all(created.map((s) => s.kill())))
  const printState = async (sandbox, context) => {
    const execution = await sandbox.runCode(look, { context })
    assert.equal(execution.error, undefined, execution.error?.traceback)
    return execution.logs.stdout.join('')
  }

  test('pause and resume keep the state', async () => {
    const sandbox = await Sandbox.create({ timeoutMs: 300_000 })
    created.push(sandbox)
    const context = await sandbox.createCodeContext({ cwd: '/tmp' })
    await sandbox.runCode(keep, { context })
    await sandbox.runCode('x = 41')
    await sandbox.runCode('let kept = { n: 41 }', { language: 'js' })
    const before = await printState(sandbox, context)
    const contexts = (await sandbox.listCodeContexts()).map((c) => c.id)
    assert.equal(await sandbox.pause(), true)
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await printState(again, context), before)
    assert.equal((await again.runCode('x + 1')).text, '42')
    assert.equal((await again.runCode('kept.n + 1', { language: 'js' })).text, '42')
    assert.deepEqual((await again.listCodeContexts()).map((c) => c.id), contexts)
  })

  test('runCode resumes a paused sandbox and keeps its state', async () => {
    const sandbox = await Sandbox.create({ timeoutMs: 300_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
    created.push(sandbox)
    await sandbox.runCode('x = 41')
    await sandbox.pause()
    assert.equal((await sandbox.runCode('x + 1')).text, '42')
  })

  test('each copy has its own state', async () => {
    const sandbox = await Sandbox.create({ timeoutMs: 300_000 })
    created.push(sandbox)
    await sandbox.runCode(keep)
    const before = await printState(sandbox)
    const snapshot = await sandbox.createSnapshot()
    const copies = [await Sandbox.create(snapshot.snapshotId, { timeoutMs: 120_000 }), ...(await sandbox.fork({ count: 2, timeoutMs: 120_000 }))]
    for (const copy of copies) {
      if (copy instanceof Error) throw copy
      created.push(copy)
      assert.equal(await printState(copy), before)
    }
    await copies[0].runCode('secret = "changed"')
    assert.equal(await printState(sandbox), before)
    assert.equal(await printState(copies[1]), before)
    const drawn = await Promise.all([sandbox, ...copies].map(async (s) => (await s.runCode('os.urandom(8).hex()')).text))
    assert.equal(new Set(drawn).size, 4, 'copies draw the same random numbers')
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  })
})
