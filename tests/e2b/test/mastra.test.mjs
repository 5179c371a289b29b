// The requests that @mastra/e2b 0.8.0 makes, with a template and without one.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'

import { withSdk, rejects } from './support.mjs'

withSdk('@mastra/e2b', (sdk) => {
  test('F25: a sandbox is stopped by a pause, found by its label, and started again', async () => {
    const label = { 'mastra-sandbox-id': randomUUID() }
    const find = () => sdk.Sandbox.list({ query: { metadata: label, state: ['running', 'paused'] } }).nextItems()
    const created = await sdk.Sandbox.create('base', { lifecycle: { onTimeout: 'pause' }, metadata: label, timeoutMs: 300_000 })
    try {
      await created.commands.run('echo kept > /tmp/k; sleep 3000', { background: true, timeoutMs: 0 })
      await created.pause()
      const [paused, ...more] = await find()
      assert.equal(more.length, 0)
      assert.equal(paused.state, 'paused')
      assert.equal(paused.sandboxId, created.sandboxId)
      const again = await sdk.Sandbox.connect(paused.sandboxId)
      assert.equal((await again.commands.run('cat /tmp/k')).stdout, 'kept\n')
      assert.ok((await again.commands.list()).some((p) => p.args.join(' ').includes('sleep 3000')), 'the background program has ended')

      // Again, from a client that knows only the label.
      await sdk.Sandbox.pause(again.sandboxId)
      assert.equal((await find())[0].state, 'paused')
      const other = await sdk.Sandbox.connect((await find())[0].sandboxId)
      assert.equal((await other.commands.run('cat /tmp/k')).stdout, 'kept\n')
    } finally {
      await created.kill()
    }
    assert.deepEqual(await find(), [])
  })

  test('F25: the template that @mastra/e2b builds by default fails to build, with an error about apt-get', async () => {
    const builder = sdk.Template().fromTemplate('base').aptInstall(['fuse'])
    assert.equal(await sdk.Template.exists('mastra-none'), false)
    await rejects(sdk.Template.build(builder, 'mastra-none'), sdk.BuildError, /RUN apt-get update .*: the command ended with exit code 127/)
  })
})
