import assert from 'node:assert/strict'
import { test } from 'node:test'

import { eventually, withSandbox, rejects } from './support.mjs'

withSandbox('watching', (sdk, shared) => {
  const watch = async (path, opts) => {
    const events = []
    const handle = await shared.sandbox.files.watchDir(path, (event) => void events.push(event), opts)
    const sees = (name, type) =>
      eventually(`${type} of ${name}`, () => events.find((e) => e.name === name && e.type === type))
    return { events, handle, sees }
  }

  test('one directory', async () => {
    const { files } = shared.sandbox
    await files.makeDir('flat/sub')
    const { sees, handle, events } = await watch('flat')
    await files.write('flat/new', '1')
    await sees('new', 'create')
    await sees('new', 'write')
    await files.rename('flat/new', 'flat/moved')
    await sees('new', 'rename')
    await files.remove('flat/moved')
    await sees('moved', 'remove')
    await files.write('flat/sub/unseen', '1')
    await files.write('flat/last', '1')
    await sees('last', 'create')
    assert.ok(!events.some((e) => e.name.includes('unseen')), 'a subdirectory was watched')
    await handle.stop()
  })

  test('a tree with new subdirectories', async () => {
    const { files } = shared.sandbox
    await files.makeDir('tree/old')
    const { sees, handle } = await watch('tree', { recursive: true })
    await files.write('tree/old/a', '1')
    await sees('old/a', 'create')
    await files.makeDir('tree/young')
    await sees('young', 'create')
    await eventually('a directory made later is watched', async () => {
      await files.write('tree/young/b', String(Date.now()))
      return sees('young/b', 'write').then(() => true)
    })
    await handle.stop()
  })

  test('events with file information', async () => {
    const { files } = shared.sandbox
    await files.makeDir('entries')
    const { sees, handle } = await watch('entries', { includeEntry: true })
    await files.write('entries/f', '12345')
    const event = await sees('f', 'write')
    assert.equal(event.entry?.path, '/home/user/entries/f')
    await handle.stop()
  })

  test('the end of a watch', async () => {
    await shared.sandbox.files.makeDir('ending')
    let ended
    const { handle } = await watch('ending', { onExit: (error) => void (ended = { error }) })
    await handle.stop()
    await eventually('the watch ends', () => ended)
  })

  test('bad input', async () => {
    const { files } = shared.sandbox
    await rejects(files.watchDir('missing', () => {}), sdk.FileNotFoundError)
    await files.write('file', 'x')
    await rejects(files.watchDir('file', () => {}), sdk.InvalidArgumentError)
  })
})
