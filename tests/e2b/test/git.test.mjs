import assert from 'node:assert/strict'
import { test } from 'node:test'

import { withSandbox } from './support.mjs'

withSandbox('git', (sdk, shared) => {
  test('git commands', async () => {
    const { commands } = shared.sandbox
    await commands.run('git init -q -b main repo && cd repo && git config user.name N && git config user.email n@example.com')
    await commands.run('echo one > f && git add f && git commit -q -m first && git checkout -q -b side', { cwd: '/home/user/repo' })
    await commands.run('echo two > f && git commit -qam second && git checkout -q main && git merge -q side', { cwd: '/home/user/repo' })
    const { stdout } = await commands.run('git log --format=%s && git clone -q . ../copy && cat ../copy/f', { cwd: '/home/user/repo' })
    assert.equal(stdout, 'second\nfirst\ntwo\n')
  })

  test("the SDK's git module", async () => {
    const { git, files } = shared.sandbox
    const path = '/home/user/helped'
    await git.init(path, { initialBranch: 'main' })
    await files.write(`${path}/a.txt`, 'a')
    assert.equal((await git.status(path)).hasUntracked, true)
    await git.add(path)
    await git.commit(path, 'first', { authorName: 'N', authorEmail: 'n@example.com' })
    await git.createBranch(path, 'side')
    const branches = await git.branches(path)
    assert.deepEqual(branches.branches.toSorted(), ['main', 'side'])
    assert.equal((await git.status(path)).isClean, true)
  })
})
