// E2B's own command line, unmodified, as a user runs it.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { eventually, full, limit, savesMemory } from './support.mjs'

const program = new URL('../node_modules/@e2b/cli/dist/index.js', import.meta.url).pathname

describe('@e2b/cli 2.19.0', { timeout: limit }, () => {
  let home // the command line reads ~/.e2b
  let id

  // e2b returns the output of a CLI command, without colours, and its exit code.
  function e2b(...args) {
    return new Promise((done) => {
      const env = { PATH: process.env.PATH, HOME: home, NO_COLOR: '1' }
      for (const name of ['E2B_API_URL', 'E2B_SANDBOX_URL', 'E2B_API_KEY']) env[name] = process.env[name]
      const child = execFile(process.execPath, [program, ...args], { env, timeout: limit }, (error, stdout, stderr) => {
        const plain = (text) => text.replaceAll(/\x1b\[[0-9;]*m/g, '')
        done({ code: error ? error.code : 0, stdout: plain(stdout), stderr: plain(stderr) })
      })
      child.stdin.end()
    })
  }

  // run is like e2b, for a command that must succeed, and returns its output.
async function run(...args) {
    const got = await e2b(...args)
    assert.equal(got.code, 0, `e2b ${args.join(' ')}: ${got.code}\n${got.stdout}\n${got.stderr}`)
    return got.stdout
  }

  before(async () => {
    home = await mkdtemp(join(tmpdir(), 'crannog-e2b-cli-'))
    id = (await run('sandbox', 'create', '--detach', '--timeout', '300', 'base')).trim()
  })
  after(async () => {
    if (id) await e2b('sandbox', 'kill', id)
    await rm(home, { recursive: true, force: true })
  })

  test('F22: logs, in both formats, by level and logger', { skip: !full }, async () => {
    const pretty = await run('sandbox', 'logs', id)
    assert.match(pretty, /INFO .*logger: 'sandbox'.*message: '/)
    const lines = (await run('sandbox', 'logs', '--format', 'json', id)).split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line))
    assert.ok(lines.length > 0, 'no line is JSON')
    for (const line of lines) {
      assert.equal(line.level, 'info')
      assert.equal(line.logger, 'sandbox')
      assert.equal(typeof line.message, 'string')
      assert.ok(Date.now() - new Date(line.timestamp) < limit, line.timestamp)
    }
    assert.doesNotMatch(await run('sandbox', 'logs', '--loggers', 'another', id), /message:/)
    assert.match(await run('sandbox', 'logs', '--loggers', 'another,sandbox', id), /message:/)
    assert.doesNotMatch(await run('sandbox', 'logs', '--level', 'ERROR', id), /INFO/)
  })

  test('exec, with its exit code', async () => {
    assert.equal(await run('sandbox', 'exec', id, 'echo', 'from inside'), 'from inside\n')
    assert.equal((await e2b('sandbox', 'exec', id, 'exit 7')).code, 7)
  })

  test('info, list and metrics', async () => {
    const info = JSON.parse(await run('sandbox', 'info', '--format', 'json', id))
    assert.equal(info.sandboxId, id)
    assert.equal(info.state, 'running')
    const all = JSON.parse(await run('sandbox', 'list', '--format', 'json', '--limit', '0'))
    assert.ok(all.some((s) => s.sandboxId === id), `${id} is not listed`)
    await eventually('a sample', async () => /CPU/i.test(await run('sandbox', 'metrics', id)))
  })

  test('pause and resume', { skip: !savesMemory }, async () => {
    await run('sandbox', 'pause', id)
    assert.equal(JSON.parse(await run('sandbox', 'info', '--format', 'json', id)).state, 'paused')
    await run('sandbox', 'resume', id)
    assert.equal(await run('sandbox', 'exec', id, 'echo', 'again'), 'again\n')
  })

  test('F22: logs -f ends with the sandbox, and logs shows it afterwards', async () => {
    const following = e2b('sandbox', 'logs', '--follow', id)
    await run('sandbox', 'kill', id)
    const { code, stdout, stderr } = await following
    assert.equal(code, 0, stderr)
    assert.match(stdout, /message: 'sandbox created'/)
    assert.match(stdout, /Stopped printing logs/)
    assert.match(await run('sandbox', 'logs', id), /killed/)
    assert.equal((await e2b('sandbox', 'info', id)).code, 1)
    id = undefined
  })
})
