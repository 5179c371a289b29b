import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Secret, SecretNotFoundError } from 'e2b'

const value = 'canary-Zq81-value-of-a-secret'

test('a secret is made, changed, found and destroyed, and never shown', async () => {
  const name = `test-key-${Date.now()}`
  const made = await Secret.create(name, value, { metadata: { team: 'pay' } })
  assert.equal(made.name, name)
  assert.equal(made.version, 1)
  assert.deepEqual(made.metadata, { team: 'pay' })
  assert.ok(!JSON.stringify(made).includes(value))

  const changed = await Secret.update(name, value + '2')
  assert.equal(changed.version, 2)
  assert.deepEqual(changed.metadata, { team: 'pay' })

  const info = await Secret.getInfo(made.secretId)
  assert.equal(info.name, name)
  assert.ok(!JSON.stringify(info).includes(value))
  assert.equal(await Secret.exists(name), true)
  await assert.rejects(Secret.create(name, value))

  const names = []
  const pages = Secret.list({ limit: 1 })
  while (pages.hasNext) {
    for (const secret of await pages.nextItems()) names.push(secret.name)
  }
  assert.ok(names.includes(name))

  assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(name), false)
  assert.equal(await Secret.exists(name), false)
  await assert.rejects(Secret.getInfo(name), SecretNotFoundError)
})
