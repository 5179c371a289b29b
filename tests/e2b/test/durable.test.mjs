import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { held, hold, stateOf } from './state.mjs'
import { eventually, withSdk, port, slowness } from './support.mjs'

// writer sends numbers until it is stopped, and records those that were acknowledged. A number
// without a response is not sent again.
function writer(sandbox) {
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

// grows waits until at least six more lines than before are acknowledged.
async function grows(load, seen) {
  try {
    await eventually('something is acknowledged', () => load.acknowledged.length > seen + 5)
  } catch (error) {
    error.message += `, failures: ${JSON.stringify([...load.failures])}`
    throw error
  }
}

// lost returns the acknowledged lines that are missing in the file.
async function lost(sandbox, acknowledged) {
  const { stdout } = await sandbox.commands.run('sha256sum acknowledged > /dev/null && cat acknowledged', { timeoutMs: 120_000 * slowness })
  const there = new Set(stdout.split('\n'))
  return acknowledged.filter((line) => !there.has(line))
}

withSdk('what was written stays', (sdk) => {
  const made = []
  const create = async (opts) => {
    const sandbox = await sdk.Sandbox.create({ timeoutMs: 300_000, ...opts })
    made.push(sandbox)
    return sandbox
  }
  after(() => Promise.all(made.map((s) => s.kill())))

  test('through ten cycles under writes', async () => {
    const sandbox = await create()
    await hold(sandbox)
    const before = await held(sandbox)
    const load = writer(sandbox)
    let seen = 0
    for (let cycle = 0; cycle < 10; cycle++) {
      await grows(load, seen)
      seen = load.acknowledged.length
      assert.equal(await sandbox.pause(), true)
      await sandbox.connect({ timeoutMs: 300_000 })
    }
    await grows(load, seen)
    await load.stop()
    assert.deepEqual(await lost(sandbox, load.acknowledged), [])
    assert.equal(load.failures.get(200), undefined, 'an answer was not the one to its request')
    assert.equal((await held(sandbox)).sum, before.sum)
    assert.equal((await held(sandbox)).pid, before.pid)
  })

  test('through auto-pauses under writes that resume it', async () => {
    const sandbox = await create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    await hold(sandbox)
    const load = writer(sandbox)
    for (let round = 0; round < 3; round++) {
      const seen = load.acknowledged.length
      await grows(load, seen)
      const before = (await sandbox.getInfo()).endAt
      await sandbox.setTimeout(1_000)
      // If it ends later than the new timeout, it was paused and resumed.
      await eventually('it was paused and woken', async () => {
        const info = await sandbox.getInfo()
        return info.state === 'running' && info.endAt - Date.now() > 100_000 && info.endAt > before - 200_000
      })
    }
    await load.stop()
    assert.equal(await stateOf(sdk, sandbox), 'running')
    assert.deepEqual(await lost(sandbox, load.acknowledged), [])
  })
})
