// Templates that the newest SDK and E2B's command line build, from a small image with busybox.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { link, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { control, full, limit, newest, rejects } from './support.mjs'

const { BuildError, Sandbox, Template, waitForFile } = newest
const program = new URL('../node_modules/@e2b/cli/dist/index.js', import.meta.url).pathname

describe('templates (e2b 2.51.0)', { timeout: limit }, () => {
  let dir

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'crannog-e2b-template-'))
    await mkdir(join(dir, 'src/deep'), { recursive: true })
    await writeFile(join(dir, 'src/a.txt'), 'A\n')
    await writeFile(join(dir, 'src/deep/b.txt'), 'B\n')
    await symlink('a.txt', join(dir, 'src/link'))
    await link(join(dir, 'src/a.txt'), join(dir, 'src/hard'))
    await writeFile(join(dir, 'e2b.Dockerfile'), 'FROM e2bdev/base\nCOPY src/a.txt /copied\nRUN cat /copied\n')
  })
  after(() => rm(dir, { recursive: true, force: true }))

  test('a template is built, booted, built upon and removed', async () => {
    const steps = () => Template({ fileContextPath: dir }).fromBaseImage()
      .setEnvs({ GREETING: 'hé "q" $HOME' })
      .copy('src', '/app/').copy('src/*.txt', 'texts/', { mode: 0o640 }).copy('src/a.txt', '/etc/one', { user: 'root' })
      .runCmd('echo "built as $(id -un) in $PWD"')
      .setUser('worker').setWorkdir('/work').runCmd('touch here')
      .setStartCmd('echo "$GREETING" > /tmp/started; exec sleep 1000000', waitForFile('/tmp/started'))
    const lines = []
    const created = await Template.build(steps(), 'mine', { tags: ['v1', 'v2'], cpuCount: 1, memoryMB: 256, onBuildLogs: (e) => lines.push(e.message) })
    assert.deepEqual(created.tags, ['v1', 'v2'])
    assert.ok(lines.includes('built as user in /home/user'), lines.join('\n'))
    assert.equal(lines.filter((l) => l.startsWith('Uploaded')).length, 3)
    assert.equal((await Template.getBuildStatus(created)).status, 'ready')
    assert.equal(await Template.exists('mine'), true)
    assert.equal(await Template.exists('none'), false)

    const sandbox = await Sandbox.create('mine:v1', { timeoutMs: 300_000 })
    try {
      const { stdout } = await sandbox.commands.run('id -un; pwd; echo "$GREETING"; cat /tmp/started /app/a.txt /app/deep/b.txt /app/hard /app/link; ls; stat -c "%a %U" /home/user/texts/a.txt /etc/one /app/a.txt')
      assert.equal(stdout, 'worker\n/work\nhé "q" /home/user\nhé "q" /home/user\nA\nB\nA\nA\nhere\n640 user\n644 root\n644 user\n')
      assert.equal((await sandbox.getInfo()).memoryMB, 256)
    } finally {
      await sandbox.kill()
    }

    // An unchanged build uploads nothing and runs no step.
    const again = []
    const second = await Template.buildInBackground(steps(), 'mine', { tags: ['v3'], onBuildLogs: (e) => again.push(e.message) })
    assert.equal(again.filter((l) => l.startsWith('Skipping upload')).length, 3)
    assert.equal(second.templateId, created.templateId)
    let status
    for (let n = 0; !['ready', 'error'].includes(status?.status); n++) {
      status = await Template.getBuildStatus(second)
      assert.ok(n < 6000)
      await new Promise((done) => setTimeout(done, 50))
    }
    assert.equal(status.status, 'ready', status.reason?.message)
    assert.ok(!status.logEntries.some((e) => e.message.startsWith('built as')), 'a step ran again')

    await Template.assignTags('mine:v3', 'stable')
    const tags = async () => Object.fromEntries((await Template.getTags('mine')).map((t) => [t.tag, t.buildId]))
    assert.deepEqual(await tags(), { default: created.buildId, v1: created.buildId, v2: created.buildId, v3: second.buildId, stable: second.buildId })
    await Template.removeTags('mine', ['v2', 'v3'])
    assert.deepEqual(Object.keys(await tags()).sort(), ['default', 'stable', 'v1'])

    const error = await rejects(Template.build(Template().fromTemplate('mine').runCmd('test "$(id -un)" = worker').runCmd('echo no; exit 7'), 'child'), BuildError, /RUN echo no; exit 7: the command ended with exit code 7/)
    assert.match(error.stack, /template\.test\.mjs/)
    assert.equal(await Template.exists('child'), false)

    const listed = await (await control('GET', '/templates')).json()
    assert.deepEqual(listed.filter((t) => t.templateID === created.templateId).map((t) => [t.names, t.buildID, t.public]), [[['mine'], second.buildId, false]])
    assert.equal((await control('DELETE', '/templates/mine')).status, 204)
    assert.equal(await Template.exists('mine'), false)
    await rejects(Sandbox.create('mine'), Error, /not found/)
  })

  test('a failed build reports the reason', async () => {
    await rejects(Template.build(Template().fromImage('no/such:image'), 'bad'), BuildError, /is not on the server's machine/)
    await rejects(Template.build(Template().fromImage('e2bdev/base', { username: 'u', password: 'p' }), 'bad'), BuildError, /400: .*does not accept registry credentials/)
    await rejects(Template.build(Template().fromTemplate('none'), 'bad'), BuildError, /template 'none' not found/)
    await rejects(Template.build(Template().fromBaseImage(), 'base'), BuildError, /409/)
  })

  test('@e2b/cli template create, list and delete', { skip: !full }, async () => {
    const e2b = (...args) => new Promise((done) => {
      const env = { PATH: process.env.PATH, HOME: dir, NO_COLOR: '1' }
      for (const name of ['E2B_API_URL', 'E2B_SANDBOX_URL', 'E2B_API_KEY']) env[name] = process.env[name]
      const child = execFile(process.execPath, [program, 'template', ...args], { env, timeout: limit }, (error, stdout, stderr) => {
        done({ code: error ? error.code : 0, text: (stdout + stderr).replaceAll(/\x1b\[[0-9;]*m/g, '') })
      })
      child.stdin.end()
    })
    const created = await e2b('create', 'cli-made', '--path', dir)
    assert.equal(created.code, 0, created.text)
    assert.match(created.text, /INFO +A\n/)
    const list = await e2b('list', '--format', 'json')
    assert.match(list.text, /"cli-made"/)
    assert.match((await e2b('list')).text, /Private .*cli-made/)
    const gone = await e2b('delete', '--yes', 'cli-made')
    assert.equal(gone.code, 0, gone.text)
    assert.doesNotMatch((await e2b('list', '--format', 'json')).text, /"cli-made"/)
  })
})
