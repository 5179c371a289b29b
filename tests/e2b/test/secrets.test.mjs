import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Secret, SecretNotFoundError } from 'e2b'

const value = 'canary-Zq81-value-of-a-secret'

test('a secret is created, changed, found and destroyed, and its value is never shown', async () => {
  const name = `test-key-${Date.now()}`
  const created = await Secret.create(name, value, { metadata: { team: 'pay' } })
  assert.equal(created.name, name)
  assert.equal(created.version, 1)
  assert.deepEqual(created.metadata, { team: 'pay' })
  assert.ok(!JSON.stringify(created).includes(value))

  const changed = await Secret.update(name, value + '2')
  assert.equal(changed.version, 2)
  assert.deepEqual(changed.metadata, { team: 'pay' })

  const info = await Secret.getInfo(created.secretId)
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
