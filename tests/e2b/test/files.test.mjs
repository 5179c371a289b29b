import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { withSandbox, rejects } from './support.mjs'

withSandbox('files', (sdk, shared) => {
  test('text', async () => {
    const { files } = shared.sandbox
    const info = await files.write('a.txt', 'héllo\n')
    assert.deepEqual([info.name, info.type, info.path, info.metadata], ['a.txt', 'file', '/home/user/a.txt', undefined])
    assert.equal(await files.read('a.txt'), 'héllo\n')
    assert.equal(await files.read('/home/user/a.txt'), 'héllo\n')
    await files.write('a.txt', 'x')
    assert.equal(await files.read('a.txt'), 'x')
    await files.write('empty', '')
    assert.equal(await files.read('empty'), '')
  })

  test('bytes, blobs and streams', async () => {
    const { files } = shared.sandbox
    const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 31) % 256)
    await files.write('deep/er/bytes', bytes.buffer)
    assert.deepEqual(await files.read('deep/er/bytes', { format: 'bytes' }), bytes)
    await files.write('blob', new Blob([bytes]))
    assert.deepEqual(new Uint8Array(await (await files.read('blob', { format: 'blob' })).arrayBuffer()), bytes)
    await files.write('stream', new Blob([bytes]).stream())
    const chunks = []
    for await (const chunk of await files.read('stream', { format: 'stream' })) chunks.push(chunk)
    assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), bytes)
  })

  // The file is large enough to fill every buffer on the way many times.
  test('upload and download of a large file', async () => {
    const { files, commands } = shared.sandbox
    const data = new Uint8Array(randomBytes(48 << 20))
    const digest = (bytes) => createHash('sha256').update(bytes).digest('hex')
    await files.write('/tmp/large', new Blob([data]))
    const { stdout } = await commands.run('sha256sum < /tmp/large')
    assert.equal(stdout.split(' ')[0], digest(data))
    assert.equal(digest(await files.read('/tmp/large', { format: 'bytes' })), digest(data))
    await files.remove('/tmp/large')
  })

  test('several files in one request', async () => {
    const written = await shared.sandbox.files.write([
      { path: 'many/one', data: '1' },
      { path: '/home/user/many/two', data: '2' },
      { path: 'many/three words', data: '3' },
    ])
    assert.deepEqual(written.map((w) => w.path), ['/home/user/many/one', '/home/user/many/two', '/home/user/many/three words'])
    assert.equal(await shared.sandbox.files.read('many/three words'), '3')
  })

  test('an octet stream, compressed', async () => {
    await shared.sandbox.files.write('packed', 'z'.repeat(100_000), { gzip: true, useOctetStream: true })
    assert.equal((await shared.sandbox.files.read('packed', { gzip: true })).length, 100_000)
  })

  test('list, by depth', async () => {
    const { files } = shared.sandbox
    await files.write([{ path: 'tree/a/b/c', data: 'c' }, { path: 'tree/top', data: 't' }])
    const names = async (opts) => (await files.list('tree', opts)).map((e) => e.path.slice('/home/user/tree/'.length)).sort()
    assert.deepEqual(await names(), ['a', 'top'])
    assert.deepEqual(await names({ depth: 2 }), ['a', 'a/b', 'top'])
    assert.deepEqual(await names({ depth: 9 }), ['a', 'a/b', 'a/b/c', 'top'])
    const [a, top] = (await files.list('tree')).sort((x, y) => x.name.localeCompare(y.name))
    assert.equal(a.type, 'dir')
    assert.equal(top.type, 'file')
    assert.equal(top.size, 1)
    assert.equal(top.owner, 'user')
    assert.equal(top.permissions, '-rw-r--r--')
  })

  test('info of files and links', async () => {
    const { files, commands } = shared.sandbox
    await files.write('target', '12345')
    await commands.run('chmod 640 target && ln -s target link')
    const target = await files.getInfo('target')
    assert.equal(target.size, 5)
    assert.equal(target.mode, 0o640)
    assert.ok(Math.abs(target.modifiedTime - Date.now()) < 60_000, `modified ${target.modifiedTime}`)
    assert.equal((await files.getInfo('link')).symlinkTarget, '/home/user/target')
    assert.equal((await files.getInfo('/home/user')).type, 'dir')
  })

  test('directories, moving, removing', async () => {
    const { files } = shared.sandbox
    assert.equal(await files.makeDir('made/here'), true)
    assert.equal(await files.makeDir('made/here'), false)
    await files.write('made/here/f', 'f')
    assert.equal((await files.rename('made/here/f', 'moved/to/g')).path, '/home/user/moved/to/g')
    assert.equal(await files.exists('made/here/f'), false)
    assert.equal(await files.exists('moved/to/g'), true)
    await files.remove('moved')
    assert.equal(await files.exists('moved/to/g'), false)
    await files.remove('moved')
  })

  test('metadata in extended attributes', async () => {
    const { files, commands } = shared.sandbox
    const info = await files.write('labelled', 'x', { metadata: { origin: 'test', note: 'two words' } })
    assert.deepEqual({ ...info.metadata }, { origin: 'test', note: 'two words' })
    assert.deepEqual({ ...(await files.getInfo('labelled')).metadata }, { origin: 'test', note: 'two words' })
    const { stdout } = await commands.run(`python3 -c 'import os; print(os.getxattr("labelled", "user.e2b.origin"))'`)
    assert.equal(stdout.trim(), "b'test'")
    await files.write('labelled', 'x', { metadata: { other: '1' } })
    assert.deepEqual({ ...(await files.getInfo('labelled')).metadata }, { other: '1' })
  })

  test('users', async () => {
    const { files } = shared.sandbox
    await files.write('/root/secret', 's', { user: 'root' })
    assert.equal(await files.read('/root/secret', { user: 'root' }), 's')
    await assert.rejects(files.read('/root/secret'))
    assert.equal((await files.getInfo('/root/secret', { user: 'root' })).owner, 'root')
    await rejects(files.read('a.txt', { user: 'no-such-user' }), sdk.AuthenticationError)
  })

  // E2B creates these directories as root and gives them to the user, because agents write there.
  test('F21: files outside of the home directory', async () => {
    const { files, commands } = shared.sandbox
    assert.equal((await files.write('/app/src/main.py', 'print(1)')).path, '/app/src/main.py')
    assert.equal(await files.read('/app/src/main.py'), 'print(1)')
    await files.write('/app/src/main.py', 'print(2)')
    assert.equal(await files.makeDir('/data/a/b'), true)
    assert.equal(await files.makeDir('/data/a/b'), false)
    await files.write('made/for/f21', 'x')
    assert.equal((await files.rename('made/for/f21', '/code/f21')).owner, 'user')
    await files.write([{ path: '/srv/x/one', data: '1' }, { path: '/opt/x/two', data: '2' }, { path: '/etc/f21.conf', data: '3' }])
    const { stdout } = await commands.run('cd /app/src && python3 main.py && touch /app/new /data/a/new /opt/x/new && stat -c "%U:%G %n" /app /app/src/main.py /data /data/a/b /code/f21 /srv/x/one /opt/x/two /etc/f21.conf /etc')
    assert.equal(stdout, ['2', 'user:user /app', 'user:user /app/src/main.py', 'user:user /data', 'user:user /data/a/b', 'user:user /code/f21',
      'user:user /srv/x/one', 'user:user /opt/x/two', 'user:user /etc/f21.conf', 'root:root /etc', ''].join('\n'))
    // No existing file changes its owner, and no link makes root write elsewhere.
    await commands.run('ln -s /etc/shells shells; ln -s /etc/made made-by-link; ln -s /usr usr')
    for (const path of ['/etc/hosts', 'shells', 'made-by-link', 'usr/made'])
      await rejects(files.write(path, 'evil'), sdk.SandboxError, /permission|denied|403/i)
    await rejects(files.makeDir('usr/made'), sdk.SandboxError)
    assert.equal((await commands.run('stat -c %U /etc/hosts; ls /etc/made /usr/made 2>&1 | grep -c "No such file"')).stdout, 'root\n2\n')
    await commands.run('rm shells made-by-link usr')
  })

  test('unusual file names', async () => {
    const { files } = shared.sandbox
    for (const name of ['sp ace', 'new\nline', '日本語', "quo'te\"", 'a%2fb', '-rf', '#?&=+;', '$(id)']) {
      await files.write(`names/${name}`, name)
      assert.equal(await files.read(`names/${name}`), name)
      assert.equal((await files.getInfo(`names/${name}`)).name, name)
    }
    assert.equal((await files.list('names')).length, 8)
  })

  test('bad input', async () => {
    const { files } = shared.sandbox
    await rejects(files.read('missing'), sdk.FileNotFoundError, /does not exist/)
    await rejects(files.list('missing'), sdk.FileNotFoundError)
    await rejects(files.getInfo('missing'), sdk.FileNotFoundError)
    await rejects(files.rename('missing', 'x'), sdk.FileNotFoundError)
    await rejects(files.read('/home/user'), sdk.InvalidArgumentError, /is a directory/)
    await files.write('plain', 'x')
    await rejects(files.list('plain'), sdk.InvalidArgumentError)
    await rejects(files.makeDir('plain'), sdk.InvalidArgumentError)
    // A path with .. ends at the sandbox's own root, which has none of the host's files.
    await rejects(files.read('../../../../../../proc/1/environ'), Error)
    await rejects(files.read('/var/lib/crannog/crannog.db', { user: 'root' }), sdk.FileNotFoundError)
    await rejects(files.write('/usr/bin/env', 'x'), sdk.SandboxError, /permission denied/)
  })
})
