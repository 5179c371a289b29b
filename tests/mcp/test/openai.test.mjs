// The OpenAI Agents SDK, with a model that follows a script, completes a task through the tools.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { Agent, MCPServerStdio, Runner, setTracingDisabled, Usage } from '@openai/agents'
import { crannog, project } from '../common.mjs'
import { broken, conclusion, files, Script, steps } from '../task.mjs'

setTracingDisabled(true)

test('@openai/agents completes a task through the tools', async (t) => {
  const dir = project(t, files)
  const script = new Script()
  let calls = 0
  const model = {
    async getResponse({ input, tools }) {
      assert.ok(tools.some((o) => o.name === 'bash'), 'the model is not offered the tools')
      const last = Array.isArray(input) ? input.at(-1) : undefined
      const answer = last?.type === 'function_call_result' ? JSON.stringify(last.output).replaceAll('\\\\n', '\n').replaceAll('\\n', '\n') : ''
      const step = script.next(answer)
      if (!step) {
        return { usage: new Usage(), output: [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: conclusion }] }] }
      }
      const output = [{ type: 'function_call', callId: `call-${++calls}`, name: step.tool, status: 'completed', arguments: JSON.stringify(step.input) }]
      return { usage: new Usage(), output }
    },
    getStreamedResponse() { throw new Error('streaming is not supported by this model') },
  }
  const server = new MCPServerStdio({ command: crannog, args: ['mcp', '--workspace', dir], env: process.env })
  await server.connect()
  try {
    const agent = new Agent({ name: 'mender', instructions: 'Mend.', model, mcpServers: [server] })
    const result = await new Runner({ tracingDisabled: true }).run(agent, 'Make the tests pass.', { maxTurns: 20 })
    assert.equal(result.finalOutput, conclusion)
  } finally {
    await server.close()
  }
  assert.ok(script.done)
  assert.equal(calls, steps.length)
  assert.equal(readFileSync(join(dir, 'calc.py'), 'utf8'), broken, 'the directory of the host changed')
})
