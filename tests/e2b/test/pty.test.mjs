import assert from 'node:assert/strict'
import { test } from 'node:test'

import { eventually, withSandbox } from './support.mjs'

withSandbox('terminals', (sdk, shared) => {
  const open = async (opts = {}) => {
    const decoder = new TextDecoder()
    const terminal = { text: '' }
    terminal.handle = await shared.sandbox.pty.create({
      cols: 80,
      rows: 24,
      onData: (data) => void (terminal.text += decoder.decode(data, { stream: true })),
      ...opts,
    })
    terminal.type = (text) => shared.sandbox.pty.sendInput(terminal.handle.pid, new TextEncoder().encode(text))
    terminal.shows = (text) => eventually(`the terminal shows ${text}`, () => terminal.text.includes(text))
    return terminal
  }

  test('a shell with a size, and another size', async () => {
    const terminal = await open({ envs: { MINE: 'yes' }, cwd: '/tmp' })
    await terminal.type('echo "<$(stty size)|$TERM|$MINE|$(pwd)|$(tty | cut -c1-9)>"\n')
    await terminal.shows('<24 80|xterm-256color|yes|/tmp|/dev/pts/>')
    await shared.sandbox.pty.resize(terminal.handle.pid, { cols: 132, rows: 50 })
    await terminal.type('echo "<<$(stty size)>>"\n')
    await terminal.shows('<<50 132>>')
    await terminal.type('exit 0\n')
    assert.equal((await terminal.handle.wait()).exitCode, 0)
  })

  test('control-C interrupts', async () => {
    const terminal = await open()
    // Wait until the program runs. Before that the terminal belongs to bash, and a bash that is
    // about to start a program drops an interrupt.
    await terminal.type(`sh -c 'echo rea""dy; exec sleep 300'; echo code=$?\n`)
    await terminal.shows('ready')
    await terminal.type('\x03')
    await terminal.type('echo "code is $?"\n')
    await terminal.shows('code is 130')
    assert.equal(await shared.sandbox.pty.kill(terminal.handle.pid), true)
  })

  test('kill', async () => {
    const terminal = await open()
    assert.equal(await shared.sandbox.pty.kill(terminal.handle.pid), true)
    await assert.rejects(terminal.handle.wait())
    await eventually('the terminal is gone', async () => (await shared.sandbox.pty.kill(terminal.handle.pid)) === false)
  })

  test('connecting to a running terminal', async () => {
    const terminal = await open()
    let second = ''
    const handle = await shared.sandbox.pty.connect(terminal.handle.pid, {
      onData: (data) => void (second += new TextDecoder().decode(data)),
    })
    assert.equal(handle.pid, terminal.handle.pid)
    await terminal.type('echo se""cond\n')
    await eventually('the second client sees it', () => second.includes('second'))
    await shared.sandbox.pty.kill(terminal.handle.pid)
  })
})
