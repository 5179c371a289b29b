import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { readHolder, startHolder, stateOf } from './state.mjs'
import { eventually, withSdk, port, slowness } from './support.mjs'

// startWriters sends numbers until it is stopped, and stores those that were acknowledged. A number
// without a response is not sent again.
function startWriters(sandbox) {
  const acknowledged = []
  // The number of failed requests for each status, or kind of error.
  const failures = new Map()
  let stopped = false
  const loop = async (lane) => {
    for (let n = 0; !stopped; n++) {
      const line = `${lane}-${n}`
      try {
        const response = await port(sandbox, 8000, '/', { method: 'POST', body: line, signal: AbortSignal.timeout(60_000 * slowness) })
        const text = await response.text()
        if (response.status === 200 && text === line) {
          acknowledged.push(line)
          continue
        }
        failures.set(response.status, (failures.get(response.status) ?? 0) + 1)
      } catch (error) {
        const name = error.cause?.code ?? error.name
        failures.set(name, (failures.get(name) ?? 0) + 1)
      }
      await new Promise((done) => setTimeout(done, 20))
    }
  }
  const lanes = [0, 1, 2].map(loop)
  return {
    acknowledged,
    failures,
    stop: async () => {
      stopped = true
      await Promise.all(lanes)
    },
  }
}

// awaitProgress waits until at least six more lines than before are acknowledged.
async function awaitProgress(load, seen) {
  try {
    await eventually('more lines are acknowledged', () => load.acknowledged.length > seen + 5)
  } catch (error) {
    error.message += `, failures: ${JSON.stringify([...load.failures])}`
    throw error
  }
}

// missingLines returns the acknowledged lines that are not in the file.
async function missingLines(sandbox, acknowledged) {
  const { stdout } = await sandbox.commands.run('sha256sum acknowledged > /dev/null && cat acknowledged', { timeoutMs: 120_000 * slowness })
  const stored = new Set(stdout.split('\n'))
  return acknowledged.filter((line) => !stored.has(line))
}

withSdk('acknowledged writes are not lost', (sdk) => {
  const created = []
  const create = async (opts) => {
    const sandbox = await sdk.Sandbox.create({ timeoutMs: 300_000, ...opts })
    created.push(sandbox)
    return sandbox
  }
  after(() => Promise.all(created.map((s) => s.kill())))

  test('through ten cycles under writes', async () => {
    const sandbox = await create()
    await startHolder(sandbox)
    const before = await readHolder(sandbox)
    const load = startWriters(sandbox)
    let seen = 0
    for (let cycle = 0; cycle < 10; cycle++) {
      await awaitProgress(load, seen)
      seen = load.acknowledged.length
      assert.equal(await sandbox.pause(), true)
      await sandbox.connect({ timeoutMs: 300_000 })
    }
    await awaitProgress(load, seen)
    await load.stop()
    assert.deepEqual(await missingLines(sandbox, load.acknowledged), [])
    assert.equal(load.failures.get(200), undefined, 'a request got the answer of another')
    assert.equal((await readHolder(sandbox)).sum, before.sum)
    assert.equal((await readHolder(sandbox)).pid, before.pid)
  })

  test('through auto-pauses under writes that resume the sandbox', async () => {
    const sandbox = await create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    await startHolder(sandbox)
    const load = startWriters(sandbox)
    for (let round = 0; round < 3; round++) {
      const seen = load.acknowledged.length
      await awaitProgress(load, seen)
      const before = (await sandbox.getInfo()).endAt
      await sandbox.setTimeout(1_000)
      // An end later than the new timeout shows that the sandbox was paused and resumed.
      await eventually('the sandbox was paused and resumed', async () => {
        const info = await sandbox.getInfo()
        return info.state === 'running' && info.endAt - Date.now() > 100_000 && info.endAt > before - 200_000
      })
    }
    await load.stop()
    assert.equal(await stateOf(sdk, sandbox), 'running')
    assert.deepEqual(await missingLines(sandbox, load.acknowledged), [])
  })
})
