import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { Sandbox, TimeoutError, NotFoundError, SandboxError } from '@e2b/code-interpreter'

import { eventually, limit, port, rejects, slowness } from './support.mjs'

describe('@e2b/code-interpreter 2.8.0', { timeout: 2 * limit }, () => {
  let sandbox
  before(async () => {
    sandbox = await Sandbox.create({ timeoutMs: 300_000, envs: { FROM_CREATE: 'yes' } })
  })
  after(async () => {
    await sandbox?.kill()
  })

  test('a value', async () => {
    const execution = await sandbox.runCode('1 + 1')
    assert.equal(execution.text, '2')
    assert.equal(execution.error, undefined)
    assert.ok(execution.executionCount >= 1)
  })

  test('variables persist between cells', async () => {
    await sandbox.runCode('import math\ndef area(r):\n    return math.pi * r * r\nx = 2')
    assert.equal((await sandbox.runCode('x = x + 1\nround(area(x), 3)')).text, '28.274')
    assert.equal((await sandbox.runCode('y = 5')).text, undefined)
  })

  test('output, streamed', async () => {
    // The code waits until the client has seen the first part of its output.
    const seen = []
    let answered
    const execution = await sandbox.runCode(
      'import os, sys, time\nprint(0, flush=True)\nwhile not os.path.exists("/home/user/received"):\n    time.sleep(0.05)\nprint(1)\nprint("e", file=sys.stderr)',
      {
        onStdout: (m) => {
          seen.push(m.line)
          answered ??= sandbox.files.write('/home/user/received', '')
        },
        onStderr: (m) => void seen.push(`err ${m.line}`),
      })
    await answered
    assert.equal(execution.logs.stdout.join(''), '0\n1\n')
    assert.equal(execution.logs.stderr.join(''), 'e\n')
    assert.ok(seen[0].startsWith('0'))
  })

  test('output of programs that the code starts', async () => {
    const execution = await sandbox.runCode('import subprocess\n_ = subprocess.run(["echo", "from below"])')
    assert.equal(execution.logs.stdout.join(''), 'from below\n')
  })

  test('an error, with its trace', async () => {
    let reported
    const execution = await sandbox.runCode('def f():\n    return 1 / 0\nf()', { onError: (e) => void (reported = e) })
    assert.equal(execution.error.name, 'ZeroDivisionError')
    assert.equal(execution.error.value, 'division by zero')
    assert.match(execution.error.traceback, /return 1 \/ 0/)
    assert.equal(reported.name, 'ZeroDivisionError')
    assert.equal((await sandbox.runCode('"still here"')).text, 'still here')
    assert.equal((await sandbox.runCode('this is no python')).error.name, 'SyntaxError')
  })

  test('rich results', async () => {
    const execution = await sandbox.runCode([
      'from IPython.display import display, HTML, JSON, Markdown, Image',
      'import base64',
      'display(HTML("<b>bold</b>"))',
      'display(Markdown("# title"))',
      'display(JSON({"a": [1, 2]}))',
      'display(Image(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="), format="png"))',
      'class Both:\n    def _repr_html_(self): return "<i>x</i>"\n    def _repr_latex_(self): return "$x$"\n    def __repr__(self): return "both"',
      'Both()',
    ].join('\n'))
    assert.equal(execution.error, undefined)
    const [html, markdown, json, png, both] = execution.results
    assert.equal(html.html, '<b>bold</b>')
    assert.equal(markdown.markdown, '# title')
    assert.deepEqual(json.json, { a: [1, 2] })
    assert.match(png.png, /^iVBORw0KGgo/)
    assert.equal(html.isMainResult, false)
    assert.deepEqual([both.isMainResult, both.text, both.html, both.latex], [true, 'both', '<i>x</i>', '$x$'])
  })

  // The host template uses the host's Python, so the host needs the Debian package
  // python3-matplotlib.
  test('charts', async () => {
    const execution = await sandbox.runCode([
      'import matplotlib.pyplot as plt',
      'fig, ax = plt.subplots()',
      'ax.plot([1, 2, 3], [4, 5, 6], label="line")',
      'ax.set_title("T"); ax.set_xlabel("X"); ax.set_ylabel("Y")',
      'plt.show()',
    ].join('\n'))
    assert.equal(execution.error, undefined, execution.error?.traceback)
    const result = execution.results.find((r) => r.png)
    assert.ok(result, 'no picture')
    assert.equal(result.chart.type, 'line')
    assert.equal(result.chart.title, 'T')
    assert.equal(result.chart.x_label, 'X')
    assert.deepEqual(result.chart.elements[0].points, [[1, 4], [2, 5], [3, 6]])
  })

  test('F17: a cell that is indented as a whole', async () => {
    const execution = await sandbox.runCode(`
      total = 0
      for n in range(4):
          total += n
      total
    `)
    assert.deepEqual([execution.error, execution.text], [undefined, '6'])
  })

  test('F18, F19: a saved picture, and the angles of a pie', async () => {
    const saved = await sandbox.runCode(`
    from PIL import Image
    Image.new('RGBA', (16, 16), 'red').save('test.png')
    `)
    assert.match(saved.results[0]?.png ?? '', /^iVBORw0KGgo/, saved.error?.traceback)
    const pie = await sandbox.runCode(`
    fig, ax = plt.subplots(figsize=(8, 8))
    ax.pie([90, 10], labels=['No', 'No, in blue'], autopct='%1.1f%%', startangle=90)
    plt.show()
    `)
    assert.deepEqual(pie.results[0]?.chart.elements, [
      { label: 'No', angle: 324, radius: 1 }, { label: 'No, in blue', angle: 36, radius: 1 },
    ])
  })

  test('environment, from create and for one run', async () => {
    const read = 'import os\nos.environ.get("FROM_CREATE"), os.environ.get("ONCE")'
    assert.equal((await sandbox.runCode(read)).text, "('yes', None)")
    assert.equal((await sandbox.runCode(read, { envs: { ONCE: '1', FROM_CREATE: 'no' } })).text, "('no', '1')")
    assert.equal((await sandbox.runCode(read)).text, "('yes', None)")
  })

  test('contexts', async () => {
    const first = await sandbox.listCodeContexts()
    assert.ok(first.some((c) => c.language === 'python') && first.some((c) => c.language === 'javascript'))
    await sandbox.commands.run('mkdir -p /tmp/elsewhere')
    const context = await sandbox.createCodeContext({ cwd: '/tmp/elsewhere' })
    assert.equal(context.language, 'python')
    assert.equal(context.cwd, '/tmp/elsewhere')
    const listed = await sandbox.listCodeContexts()
    assert.equal(listed.at(-1).id, context.id)
    await sandbox.runCode('z = 1', { context })
    assert.equal((await sandbox.runCode('import os; os.getcwd(), z', { context })).text, "('/tmp/elsewhere', 1)")
    assert.equal((await sandbox.runCode('z')).error?.name, 'NameError', 'contexts share their state')
    await sandbox.restartCodeContext(context)
    assert.equal((await sandbox.runCode('z', { context })).error?.name, 'NameError')
    await sandbox.removeCodeContext(context)
    assert.ok((await sandbox.listCodeContexts()).every((c) => c.id !== context.id))
    await rejects(sandbox.runCode('1', { context }), NotFoundError)
  })

  test('two contexts at once', async () => {
    const [a, b] = await Promise.all([sandbox.createCodeContext(), sandbox.createCodeContext()])
    // Each context ends after it has seen the other's file.
    const results = await Promise.all([a, b].map((context, i) => sandbox.runCode(
      `import os, time\nopen("/tmp/here-${i}", "w").close()\nwhile not os.path.exists("/tmp/here-${1 - i}"):\n    time.sleep(0.05)\n${i}`,
      { context })))
    assert.deepEqual(results.map((r) => r.text), ['0', '1'])
    await Promise.all([a, b].map((context) => sandbox.removeCodeContext(context)))
  })

  test('JavaScript and bash', async () => {
    assert.equal((await sandbox.runCode('const n = 20; n + 1', { language: 'javascript' })).text, '21')
    assert.equal((await sandbox.runCode('n * 2', { language: 'js' })).text, '40')
    assert.equal((await sandbox.runCode('await Promise.resolve(7)', { language: 'javascript' })).text, '7')
    assert.equal((await sandbox.runCode('throw new TypeError("bad")', { language: 'javascript' })).error.name, 'TypeError')
    await sandbox.runCode('V=kept; cd /tmp', { language: 'bash' })
    assert.equal((await sandbox.runCode('echo $V $PWD', { language: 'bash' })).logs.stdout.join(''), 'kept /tmp\n')
  })

  test('R and Java', async () => {
    const time = { timeoutMs: 120_000 * slowness } // the workers compile themselves
    const context = await sandbox.createCodeContext({ language: 'r', requestTimeoutMs: 120_000 * slowness })
    assert.equal(context.language, 'r')
    await sandbox.runCode('n <- 20', { context, ...time })
    assert.equal((await sandbox.runCode('cat("text\\n"); n + 1', { context, ...time })).text, '[1] 21')
    const plot = await sandbox.runCode('plot(1:3)', { context, ...time })
    assert.ok(plot.results[0].png.startsWith('iVBOR'))
    assert.equal((await sandbox.runCode('stop("bad")', { context, ...time })).error.value, 'bad')
    await sandbox.removeCodeContext(context)
    await sandbox.runCode('int n = 20;', { language: 'java', ...time })
    const java = await sandbox.runCode('System.out.println("text"); n + 1', { language: 'java', ...time })
    assert.deepEqual([java.text, java.logs.stdout.join('')], ['21', 'text\n'])
    assert.equal((await sandbox.runCode('throw new IllegalStateException("bad");', { language: 'java', ...time })).error.name, 'java.lang.IllegalStateException')
  })

  test('a time limit, and the context afterwards', async () => {
    await sandbox.runCode('kept = "kept"')
    await rejects(sandbox.runCode('import time\nwhile True:\n    time.sleep(0.1)', { timeoutMs: 1500 }), TimeoutError)
    // A disconnecting client interrupts the code, but the variables stay.
    const execution = await eventually('the context is free', () =>
      sandbox.runCode('kept', { timeoutMs: 15_000 * slowness }).catch(() => undefined))
    assert.equal(execution.text, 'kept')
  })

  test('bad input', async () => {
    await rejects(sandbox.runCode('1', { context: { id: 'nope', language: 'python', cwd: '/' } }), NotFoundError)
    await rejects(sandbox.runCode('1', { language: 'cobol' }), SandboxError)
    await rejects(sandbox.createCodeContext({ cwd: '/no/such/place' }), SandboxError)
  })

  test('F20: a working directory without permission', async () => {
    const before = await sandbox.listCodeContexts()
    await rejects(sandbox.createCodeContext({ cwd: '/root' }), SandboxError, /^400 /)
    const answer = await port(sandbox, 49999, '/contexts', { method: 'POST', body: JSON.stringify({ cwd: '/root' }) })
    assert.equal(answer.status, 400)
    assert.match(await answer.text(), /"\/root" cannot be entered by the sandbox's user: permission denied/)
    assert.equal((await sandbox.listCodeContexts()).length, before.length)
  })

  test('kill while code runs', async () => {
    const other = await Sandbox.create()
    let printed
    const running = other.runCode('print("up", flush=True)\nimport time\ntime.sleep(3000)', {
      onStdout: () => void (printed = true),
    }).then(() => undefined, (error) => error)
    await eventually('the code runs', () => printed)
    await other.kill()
    const error = await running
    assert.ok(error instanceof TimeoutError, `${error?.constructor.name}: ${error?.message}`)
    assert.match(error.message, /killed/)
  })
})
