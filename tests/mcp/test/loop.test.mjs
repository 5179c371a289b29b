// The work of an agent, without a model: a scripted client repairs a repository through the tools,
// its changes are applied to the working copy, and the audit log has each step.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { crannog, project, run } from '../common.mjs'
import { broken, files, corrected, Script } from '../task.mjs'

const name = `repair-${process.pid}`

async function cli(...args) {
  const { code, stdout, stderr } = await run(crannog, args)
  assert.equal(code, 0, `crannog ${args.join(' ')} has exit code ${code}\n${stdout}${stderr}`)
  return stdout
}

test('an agent corrects a repository; its changes are exported and are in the audit log', async (t) => {
  const dir = project(t, files)
  t.after(() => run(crannog, ['rm', name]))
  const client = new Client({ name: 'loop', version: '1' })
  await client.connect(new StdioClientTransport({ command: crannog, args: ['mcp', '--name', name, '--workspace', dir], env: process.env }))
  const script = new Script()
  let answer = ''
  for (let step; (step = script.next(answer)); ) {
    const got = await client.callTool({ name: step.tool, arguments: step.input })
    assert.ok(!got.isError, JSON.stringify(got))
    answer = got.content.filter((c) => c.type === 'text').map((c) => c.text).join('\n')
  }
  assert.ok(script.done)
  await client.close()

  // Nothing changes in the working copy before an export.
  assert.equal(readFileSync(join(dir, 'calc.py'), 'utf8'), broken)
  assert.deepEqual((await cli('diff', '--name-only', name)).trim().split('\n'), ['calc.py'])
  assert.match(await cli('diff', name), /^-.*prices\[1:\][^]*^\+.*sum\(prices\)$/m)

  // Exactly the changes that were shown are applied.
  await cli('apply', '--yes', name)
  for (const [file, text] of Object.entries({ ...files, 'calc.py': corrected })) {
    assert.equal(readFileSync(join(dir, file), 'utf8'), text, file)
  }
  const outside = await run('python3', ['-B', '-m', 'unittest', '-q'], { cwd: dir })
  assert.equal(outside.code, 0, outside.stderr)

  // The audit log has all steps, in this order, and verifies.
  const auditText = await cli('audit', 'show', '--sandbox', name, '--jsonl')
  const entries = auditText.trim().split('\n').map((line) => JSON.parse(line)).sort((a, b) => a.seq - b.seq)
  const runsTests = (e) => e.kind === 'exec' && e.data.argv.join(' ') === 'python3 -B -m unittest -q'
  let from = 0
  for (const [what, is] of [
    ['the start', (e) => e.kind === 'sandbox.started'], ['the failing tests', runsTests], ['the passing tests', runsTests],
    ['the export', (e) => e.kind === 'export' && e.data.files === 1],
    ['the call that exported', (e) => e.kind === 'action' && e.data.do === 'apply' && e.data.outcome === 'ok'],
  ]) {
    const at = entries.slice(from).findIndex(is)
    assert.ok(at >= 0, `${what} is missing or out of order in\n${auditText}`)
    from += at + 1
  }
  for (const [what, is] of [
    ['the exit code of the failing tests', (e) => e.kind === 'command.ended' && e.data.exit === 1],
    ['the exit code of the passing tests', (e) => e.kind === 'command.ended' && e.data.exit === 0],
    ['the edit', (e) => e.kind === 'action' && e.data.do === 'file.upload' && e.data.outcome === 'ok'],
    ['the changed file', (e) => e.kind === 'file' && e.data.op === 'changed' && e.data.path === '/workspace/calc.py'],
  ]) assert.ok(entries.some(is), `${what} is missing in\n${auditText}`)
  await cli('audit', 'verify')
  const exported = join(dir, 'record')
  const { stdout: log, stderr } = await run(crannog, ['audit', 'export'])
  const signer = /--key '([^']+)'/.exec(stderr)[1]
  writeFileSync(exported, log)
  await cli('audit', 'verify', exported, '--key', signer)
  writeFileSync(exported, log.replace('calc.py', 'calm.py'))
  const changed = await run(crannog, ['audit', 'verify', exported, '--key', signer])
  assert.equal(changed.code, 1, `control: a changed log verifies\n${changed.stdout}${changed.stderr}`)
})
