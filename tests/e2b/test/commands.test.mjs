import assert from 'node:assert/strict'
import { test } from 'node:test'

import { eventually, withSandbox, rejects } from './support.mjs'

withSandbox('commands', (sdk, shared) => {
  test('output and exit code', async () => {
    const result = await shared.sandbox.commands.run('echo out; echo err >&2')
    assert.equal(result.exitCode, 0)
    assert.equal(result.stdout, 'out\n')
    assert.equal(result.stderr, 'err\n')
  })

  test('a failing command', async () => {
    const error = await rejects(shared.sandbox.commands.run('echo before; echo why >&2; exit 3'), sdk.CommandExitError)
    assert.equal(error.exitCode, 3)
    assert.equal(error.stdout, 'before\n')
    assert.equal(error.stderr, 'why\n')
  })

  test('a command that does not exist', async () => {
    const error = await rejects(shared.sandbox.commands.run('no-such-command-here'), sdk.CommandExitError)
    assert.equal(error.exitCode, 127)
  })

  test('a command that a signal ends', async () => {
    const error = await rejects(shared.sandbox.commands.run('kill -9 $$'), sdk.CommandExitError)
    assert.notEqual(error.exitCode, 0)
  })

  test('streaming', async () => {
    // The command waits until the client has seen the first part of its output.
    const seen = []
    let answered
    await shared.sandbox.commands.run('rm -f received; echo 1; until test -e received; do sleep 0.05; done; echo 2', {
      onStdout: (text) => {
        seen.push(text)
        answered ??= shared.sandbox.files.write('received', '')
      },
    })
    await answered
    assert.deepEqual(seen, ['1\n', '2\n'])
  })

  test('two megabytes of output in one line', async () => {
    const result = await shared.sandbox.commands.run("head -c 2000000 /dev/zero | tr '\\0' x")
    assert.equal(result.stdout.length, 2_000_000)
  })

  test('user, working directory and environment', async () => {
    const run = (cmd, opts) => shared.sandbox.commands.run(cmd, opts).then((r) => r.stdout.trim())
    assert.equal(await run('id -un; pwd; echo $HOME'), 'user\n/home/user\n/home/user')
    assert.equal(await run('id -un', { user: 'root' }), 'root')
    assert.equal(await run('pwd', { cwd: '/tmp' }), '/tmp')
    assert.equal(await run('echo "$A-$B"', { envs: { A: 'x y', B: '"$1"' } }), 'x y-"$1"')
    assert.equal(await run('echo $FROM_CREATE; FROM_CREATE=x; echo $FROM_CREATE'), 'yes\nx')
    assert.equal(await run('echo $FROM_CREATE', { envs: { FROM_CREATE: 'here' } }), 'here')
    assert.equal(await run('echo $E2B_SANDBOX $E2B_SANDBOX_ID'), `true ${shared.sandbox.sandboxId}`)
  })

  test('standard input', async () => {
    const command = await shared.sandbox.commands.run('read a; echo "got $a"; cat', { background: true, stdin: true })
    await shared.sandbox.commands.sendStdin(command.pid, 'one\n')
    await eventually('the answer', () => command.stdout.includes('got one'))
    await shared.sandbox.commands.sendStdin(command.pid, 'rest')
    await shared.sandbox.commands.closeStdin(command.pid)
    const result = await command.wait()
    assert.equal(result.stdout, 'got one\nrest')
  })

  test('a command without standard input reads its end', async () => {
    assert.equal((await shared.sandbox.commands.run('cat; echo done')).stdout, 'done\n')
  })

  test('background, list and kill', async () => {
    const command = await shared.sandbox.commands.run('sleep 300', { background: true })
    const listed = await shared.sandbox.commands.list()
    assert.ok(listed.some((p) => p.pid === command.pid && p.args.includes('sleep 300')))
    assert.equal(await command.kill(), true)
    await rejects(command.wait(), sdk.CommandExitError)
    await eventually('the command leaves the list', async () =>
      (await shared.sandbox.commands.list()).every((p) => p.pid !== command.pid))
    assert.equal(await shared.sandbox.commands.kill(command.pid), false)
  })

  test('connecting to a running command', async () => {
    const command = await shared.sandbox.commands.run('read line; echo "received $line"', { background: true, stdin: true })
    const second = await shared.sandbox.commands.connect(command.pid)
    await shared.sandbox.commands.sendStdin(command.pid, 'both\n')
    assert.equal((await second.wait()).stdout, 'received both\n')
    assert.equal((await command.wait()).stdout, 'received both\n')
  })

  test('a command continues when the client disconnects', async () => {
    const command = await shared.sandbox.commands.run('sleep 300', { background: true })
    await command.disconnect()
    assert.ok((await shared.sandbox.commands.list()).some((p) => p.pid === command.pid))
    assert.equal(await shared.sandbox.commands.kill(command.pid), true)
  })

  test('a time limit ends the command', async () => {
    await rejects(shared.sandbox.commands.run('sleep 300', { timeoutMs: 500 }), sdk.TimeoutError)
    await eventually('the command is gone', async () =>
      (await shared.sandbox.commands.list()).every((p) => !p.args.includes('sleep 300')))
  })

  test('twenty commands at once', async () => {
    const results = await Promise.all(
      Array.from({ length: 20 }, (_, i) => shared.sandbox.commands.run(`echo ${i}; sleep 0.1`)))
    assert.deepEqual(results.map((r) => r.stdout), Array.from({ length: 20 }, (_, i) => `${i}\n`))
  })

  test('bad input', async () => {
    const { commands } = shared.sandbox
    await rejects(commands.run('true', { cwd: '/no/such/place' }), sdk.InvalidArgumentError, /cwd '\/no\/such\/place' does not exist/)
    await rejects(commands.run('true', { user: 'no-such-user' }), sdk.AuthenticationError, /invalid username: 'no-such-user'/)
    await rejects(commands.connect(4_000_000), sdk.NotFoundError, /process with pid 4000000 not found/)
    await rejects(commands.sendStdin(4_000_000, 'x'), sdk.NotFoundError)
  })
}, { envs: { FROM_CREATE: 'yes' } })
