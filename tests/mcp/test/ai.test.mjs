// The AI SDK, with a model that follows a script, completes a task through the tools.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { createMCPClient } from '@ai-sdk/mcp'
import { Experimental_StdioMCPTransport as Stdio } from '@ai-sdk/mcp/mcp-stdio'
import { generateText, isStepCount } from 'ai'
import { MockLanguageModelV4 } from 'ai/test'
import { crannog, project } from '../common.mjs'
import { broken, conclusion, files, Script, steps } from '../task.mjs'

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 1, text: 1, reasoning: undefined },
}

test('ai completes a task through the tools', async (t) => {
  const dir = project(t, files)
  const script = new Script()
  let calls = 0
  const model = new MockLanguageModelV4({
    doGenerate: async ({ prompt, tools }) => {
      assert.ok(tools.some((o) => o.name === 'bash'), 'the model is not offered the tools')
      const last = prompt.at(-1)
      const step = script.next(last.role === 'tool' ? JSON.stringify(last.content).replaceAll('\\\\n', '\n').replaceAll('\\n', '\n') : '')
      if (!step) return { content: [{ type: 'text', text: conclusion }], finishReason: { unified: 'stop', raw: undefined }, usage, warnings: [] }
      return {
        content: [{ type: 'tool-call', toolCallId: `call-${++calls}`, toolName: step.tool, input: JSON.stringify(step.input) }],
        finishReason: { unified: 'tool-calls', raw: undefined }, usage, warnings: [],
      }
    },
  })
  const client = await createMCPClient({ transport: new Stdio({ command: crannog, args: ['mcp', '--workspace', dir], env: process.env }) })
  try {
    const { text } = await generateText({ model, tools: await client.tools(), stopWhen: isStepCount(20), prompt: 'Make the tests pass.' })
    assert.equal(text, conclusion)
  } finally {
    await client.close()
  }
  assert.ok(script.done)
  assert.equal(calls, steps.length)
  assert.equal(readFileSync(join(dir, 'calc.py'), 'utf8'), broken, 'the directory of the host changed')
})
