// Lists and calls the product's tools with npm's inspector, in its command line mode.
import assert from 'node:assert/strict'
import test from 'node:test'
import { crannog, inspect, key, run, url } from '../common.mjs'

const tools = ['bash', 'edit_file', 'expose_port', 'fork', 'list_files', 'policy', 'process', 'python', 'read_file', 'request_access',
  'rollback', 'sandbox', 'search_files', 'snapshot', 'write_file']

const remote = (path, secret = key) => ['--transport', 'http', '--server-url', url + path, '--header', `Authorization: Bearer ${secret}`]
const transports = {
  'standard input and output': ['--', crannog, 'mcp', '--no-workspace'],
  'streamable HTTP': remote('/mcp'),
}

for (const [transport, target] of Object.entries(transports)) {
  const call = (name, ...pairs) => inspect(['--method', 'tools/call', '--tool-name', name, ...pairs.flatMap((p) => ['--tool-arg', p])], target)

  test(`tools over ${transport}`, async () => {
    const listed = (await inspect(['--method', 'tools/list'], target)).tools
    for (const name of tools) assert.ok(listed.some((t) => t.name === name), `the tool ${name} is missing`)
    for (const t of listed) {
      for (const hint of ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint']) {
        assert.equal(typeof t.annotations?.[hint], 'boolean', `${t.name} lacks ${hint}`)
      }
      assert.ok(t.description && t.outputSchema, `${t.name} lacks a description or an output schema`)
    }
  })

  test(`a command over ${transport}`, async () => {
    const got = await call('bash', 'command=echo "$((6*7)) ä"; echo oops >&2; exit 3')
    assert.equal(got.structuredContent.exit_code, 3)
    assert.equal(got.structuredContent.stdout, '42 ä\n')
    assert.equal(got.structuredContent.stderr, 'oops\n')
    assert.ok(!got.isError, 'an exit code counted as an error of the tool')
    const unknown = await call('read_file', 'path=/no/such/file')
    assert.ok(unknown.isError)
  })

  test(`resources over ${transport}`, async () => {
    const { resourceTemplates } = await inspect(['--method', 'resources/templates/list'], target)
    assert.ok(resourceTemplates.some((r) => r.uriTemplate.startsWith('sandbox://')), JSON.stringify(resourceTemplates))
    const { resources } = await inspect(['--method', 'resources/list'], target)
    assert.ok(Array.isArray(resources))
  })
}

test('the address of one sandbox uses that sandbox', async (t) => {
  const env = { ...process.env, CRANNOG_URL: url, CRANNOG_KEY: key }
  const made = await run(crannog, ['run', '--no-workspace', '-d', '--name', 'bound', '--', 'sleep', '600'], { env })
  assert.equal(made.code, 0, made.stderr)
  t.after(() => run(crannog, ['rm', 'bound'], { env }))
  const got = await inspect(['--method', 'tools/call', '--tool-name', 'bash', '--tool-arg', 'command=pgrep -f "sleep 600"'], remote('/mcp/s/bound'))
  assert.equal(got.structuredContent.sandbox, made.stdout.trim())
  assert.equal(got.structuredContent.exit_code, 0)
})

test('a wrong key is rejected', async () => {
  const wrong = 'e2b_' + '0'.repeat(40)
  await assert.rejects(inspect(['--method', 'tools/list'], remote('/mcp', wrong)), /auth_required|401/)
})
