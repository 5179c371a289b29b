import assert from 'node:assert/strict'
import { test } from 'node:test'

import { withSandbox, sandboxUrl } from './support.mjs'

withSandbox('signed file URLs', (sdk, shared) => {
  test('download', async () => {
    await shared.sandbox.files.write('out.txt', 'to fetch')
    const url = await shared.sandbox.downloadUrl('out.txt')
    assert.ok(url.startsWith(sandboxUrl))
    assert.ok(!url.includes(shared.sandbox.sandboxId), 'the URL names the sandbox')
    const response = await fetch(url)
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'to fetch')
    assert.match(response.headers.get('content-security-policy'), /sandbox/)
  })

  test('download for another user, until a moment', async () => {
    await shared.sandbox.files.write('/root/r.txt', 'of root', { user: 'root' })
    const url = await shared.sandbox.downloadUrl('/root/r.txt', { user: 'root', useSignatureExpiration: 120 })
    assert.equal(await (await fetch(url)).text(), 'of root')
  })

  test('upload', async () => {
    const url = await shared.sandbox.uploadUrl('in.txt')
    const form = new FormData()
    form.append('file', new Blob(['uploaded']), 'in.txt')
    const response = await fetch(url, { method: 'POST', body: form })
    assert.equal(response.status, 200)
    assert.deepEqual(await response.json(), [{ path: '/home/user/in.txt', name: 'in.txt', type: 'file' }])
    assert.equal(await shared.sandbox.files.read('in.txt'), 'uploaded')
  })

  test('upload with the name in the form', async () => {
    const url = await shared.sandbox.uploadUrl()
    const form = new FormData()
    form.append('file', new Blob(['named']), 'some/where/named.txt')
    assert.equal((await fetch(url, { method: 'POST', body: form })).status, 200)
    assert.equal(await shared.sandbox.files.read('some/where/named.txt'), 'named')
  })

  test('an expired one', async () => {
    const url = await shared.sandbox.downloadUrl('out.txt', { useSignatureExpiration: -120 })
    const response = await fetch(url)
    assert.equal(response.status, 401)
    assert.deepEqual(await response.json(), { code: 401, message: 'signature is already expired' })
  })

  test('what was not signed', async () => {
    const good = new URL(await shared.sandbox.downloadUrl('out.txt'))
    const refused = async (change, init) => {
      const url = new URL(good)
      change(url.searchParams)
      const response = await fetch(url, init)
      assert.equal(response.status, 401, `${url}`)
      assert.equal((await response.json()).code, 401)
    }
    await refused((q) => q.set('path', '/etc/passwd'))
    await refused((q) => q.set('username', 'root'))
    await refused((q) => q.set('signature', 'v1_wrong'))
    await refused((q) => q.delete('signature'))
    await refused((q) => q.set('signature_expiration', '99999999999'))
    await refused(() => {}, { method: 'POST', body: new FormData() })
  })
})
