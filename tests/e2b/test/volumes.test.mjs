// Volumes and the volume content API, with the unmodified SDK.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Sandbox, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'

import { apiUrl, life, limit } from './support.mjs'

const opts = { apiUrl }

test('a volume keeps files between sandboxes and serves them to the SDK', { timeout: limit }, async () => {
  const name = `data-${Date.now()}`
  const volume = await Volume.create(name)
  try {
    assert.equal(volume.name, name)
    assert.ok(volume.token)
    await assert.rejects(Volume.create(name), VolumeError)
    await assert.rejects(Volume.create('../x'), VolumeError)
    assert.deepEqual((await Volume.list()).find((v) => v.name === name), { volumeId: volume.volumeId, name })
    const info = await Volume.getInfo(volume.volumeId)
    assert.equal(info.token, volume.token)
    const again = await Volume.connect(volume.volumeId)

    // Files and directories.
    const dir = await volume.makeDir('/a/b', { ...opts, force: true, mode: 0o750 })
    assert.equal(dir.type, 'directory')
    assert.equal(dir.mode & 0o777, 0o750)
    await assert.rejects(volume.makeDir('/no/parent', opts), VolumePathNotFoundError)
    const written = await volume.writeFile('/a/b/f.txt', 'one', opts)
    assert.equal(written.size, 3)
    await volume.writeFile('/a/b/f.txt', 'two', opts)
    await assert.rejects(volume.writeFile('/a/b/f.txt', 'three', { ...opts, force: false }), VolumeError)
    assert.equal(await again.readFile('/a/b/f.txt', opts), 'two')
    assert.deepEqual(await again.readFile('/a/b/f.txt', { ...opts, format: 'bytes' }), new TextEncoder().encode('two'))
    assert.deepEqual((await volume.list('/', opts)).map((e) => e.path), ['/a'])
    assert.deepEqual((await volume.list('/', { ...opts, depth: 3 })).map((e) => e.path), ['/a', '/a/b', '/a/b/f.txt'])
    const changed = await volume.updateMetadata('/a/b/f.txt', { mode: 0o600, uid: 1000, gid: 1000 }, opts)
    assert.equal(changed.mode & 0o777, 0o600)
    assert.equal(await volume.exists('/a/none', opts), false)
    await assert.rejects(volume.readFile('/a/none', opts), VolumePathNotFoundError)

    // A sandbox changes the files. Its links must not lead to the host's files.
    const sandbox = await Sandbox.create('base', { timeoutMs: life, volumeMounts: { '/mnt/data': volume } })
    try {
      assert.deepEqual((await sandbox.getInfo()).volumeMounts, [{ name, path: '/mnt/data' }])
      const { stdout } = await sandbox.commands.run('cat /mnt/data/a/b/f.txt && echo three > /mnt/data/new && ln -s /etc/passwd /mnt/data/link')
      assert.equal(stdout, 'two')
      assert.equal(await volume.readFile('/new', opts), 'three\n')
      await assert.rejects(volume.readFile('/link', opts), VolumeError)
      assert.equal((await volume.getInfo('/link', opts)).target, '/etc/passwd')
      await assert.rejects(volume.readFile('/../../etc/passwd', opts), VolumeError)
      await assert.rejects(Volume.destroy(volume.volumeId), VolumeError)
    } finally {
      await sandbox.kill()
    }
    await volume.remove('/a', opts)
    assert.equal(await volume.exists('/a', opts), false)

    const other = new Volume(volume.volumeId, name, 'x'.repeat(40))
    await assert.rejects(other.readFile('/new', opts))
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true)
  }
  assert.equal(await Volume.destroy(volume.volumeId), false)
  await assert.rejects(Volume.getInfo(volume.volumeId), VolumeNotFoundError)
  await assert.rejects(Sandbox.create('base', { volumeMounts: { '/mnt/data': name } }))
})
