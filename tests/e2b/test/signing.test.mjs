import assert from 'node:assert/strict'
import { test } from 'node:test'

import { withSandbox, sandboxUrl, savesMemory } from './support.mjs'

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

  test('download for another user, with an expiration', async () => {
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

  test('an expired URL', async () => {
    const url = await shared.sandbox.downloadUrl('out.txt', { useSignatureExpiration: -120 })
    const response = await fetch(url)
    assert.equal(response.status, 401)
    assert.deepEqual(await response.json(), { code: 401, message: 'signature is already expired' })
  })

  test('a URL with changed parameters', async () => {
    const good = new URL(await shared.sandbox.downloadUrl('out.txt'))
    const requireRefused = async (change, init) => {
      const url = new URL(good)
      change(url.searchParams)
      const response = await fetch(url, init)
      assert.equal(response.status, 401, `${url}`)
      assert.equal((await response.json()).code, 401)
    }
    await requireRefused((q) => q.set('path', '/etc/passwd'))
    await requireRefused((q) => q.set('username', 'root'))
    await requireRefused((q) => q.set('signature', 'v1_wrong'))
    await requireRefused((q) => q.delete('signature'))
    await requireRefused((q) => q.set('signature_expiration', '99999999999'))
    await requireRefused(() => {}, { method: 'POST', body: new FormData() })
  })

  // A person who intercepts a URL can use it only for its purpose and until it expires.
  test('a URL does not work for another sandbox, or after the end of its own', async () => {
    const owner = await sdk.Sandbox.create({ timeoutMs: 300_000 })
    let copies = []
    try {
      await owner.files.write('out.txt', 'of the owner')
      await shared.sandbox.files.write('out.txt', 'of another')
      const read = await owner.downloadUrl('out.txt')
      const write = await owner.uploadUrl('replayed.txt')
      const body = () => {
        const form = new FormData()
        form.append('file', new Blob(['replayed']), 'replayed.txt')
        return { method: 'POST', body: form }
      }
      const at = (sandbox) => ({ headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' } })
      // Control: the owner serves both URLs, with and without its ID in a header.
      for (const init of [{}, at(owner)]) {
        assert.equal(await (await fetch(read, init)).text(), 'of the owner')
        assert.equal((await fetch(write, { ...body(), ...init })).status, 200)
      }
      if (owner.fork && savesMemory) {
        // A copy has the same files, and another token.
        copies = (await owner.fork({ count: 1, timeoutMs: 300_000 })).map((f) => f.sandbox ?? f)
        assert.ok(copies.length === 1 && copies[0].sandboxId, 'there is no copy')
        await owner.files.write('out.txt', 'of the owner, later')
      }
      for (const other of [shared.sandbox, ...copies]) {
        assert.equal((await fetch(read, at(other))).status, 401, `read of ${other.sandboxId}`)
        assert.equal((await fetch(write, { ...body(), ...at(other) })).status, 401, `write to ${other.sandboxId}`)
      }
      assert.equal(await shared.sandbox.files.exists('replayed.txt'), false)
      // A URL for reading does not write, list or move, nor does it open another service.
      assert.equal((await fetch(read, body())).status, 401)
      const { search } = new URL(read)
      for (const path of ['/filesystem.Filesystem/ListDir', '/process.Process/List', '/files/compose']) {
        const response = await fetch(new URL(path + search, sandboxUrl), { method: 'POST', body: '{"path":"/"}', headers: { 'Content-Type': 'application/json', ...at(owner).headers } })
        assert.ok([401, 403, 404].includes(response.status), `${path}: ${response.status}`)
      }
    } finally {
      await Promise.all([owner, ...copies].map((s) => s.kill?.()))
    }
    const response = await fetch(await owner.downloadUrl('out.txt'))
    assert.equal(response.status, 401, 'a URL of a sandbox that has ended is served')
  })
})
