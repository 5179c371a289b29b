// Network options that can be tested without an outside host. tests/causeway tests the others, with
// servers of its own.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Secret } from 'e2b'

import { control, withSdk, rejects } from './support.mjs'

const everything = '0.0.0.0/0'

// resolves reports whether a name has an address inside: only names that the policy allows have
// one. Neither kind of lookup is sent to the outside.
async function resolves(sandbox, name) {
  const found = await sandbox.commands.run(`getent ahostsv4 ${name} || echo none`)
  return found.stdout.trim() !== 'none'
}

// open reports whether a connection is accepted.
async function open(sandbox, address, port) {
  const program = `import socket
s = socket.socket()
s.settimeout(10)
print(s.connect_ex(("${address}", ${port})))`
  const done = await sandbox.commands.run(`python3 -c '${program}'`)
  return done.stdout.trim() === '0'
}

withSdk('network', (sdk) => {
  const { Sandbox } = sdk

  async function withNetwork(opts, body) {
    const sandbox = await Sandbox.create({ timeoutMs: 120_000, ...opts })
    try {
      await body(sandbox)
    } finally {
      await sandbox.kill()
    }
  }

  test('the default is the internet without private addresses', async () => {
    await withNetwork({}, async (sandbox) => {
      assert.equal(await resolves(sandbox, 'example.com'), true)
      for (const address of ['169.254.169.254', '127.0.0.2', '10.0.0.1', '192.168.1.1', '100.64.0.1']) {
        assert.equal(await open(sandbox, address, 80), false, `${address} is open`)
      }
      const info = await sandbox.getInfo()
      assert.equal(info.allowInternetAccess, true)
      assert.equal(info.network.allowPublicTraffic, true)
      assert.equal(info.network.denyOut, undefined)
    })
  })

  test('a sandbox without internet access can be given some later', async () => {
    await withNetwork({ allowInternetAccess: false }, async (sandbox) => {
      assert.equal(await resolves(sandbox, 'example.com'), false)
      assert.equal(await open(sandbox, '1.1.1.1', 80), false)
      assert.equal((await sandbox.getInfo()).allowInternetAccess, false)

      await sandbox.updateNetwork({ allowOut: ['example.com', '*.example.org'], denyOut: [everything] })
      assert.equal(await resolves(sandbox, 'example.com'), true)
      assert.equal(await resolves(sandbox, 'www.example.org'), true)
      assert.equal(await resolves(sandbox, 'example.org'), false)
      assert.equal(await resolves(sandbox, 'example.net'), false)
      const info = await sandbox.getInfo()
      assert.deepEqual(info.network.allowOut, ['example.com', '*.example.org'])
      assert.deepEqual(info.network.denyOut, [everything])
      assert.equal(info.allowInternetAccess, false)

      // Options that are left out are cleared.
      await Sandbox.updateNetwork(sandbox.sandboxId, { allowOut: ['example.net'], allowInternetAccess: false })
      assert.equal(await resolves(sandbox, 'example.com'), false)
      assert.equal(await resolves(sandbox, 'example.net'), true)
      await sandbox.updateNetwork({})
      assert.equal(await resolves(sandbox, 'example.com'), true)
      assert.equal(await open(sandbox, '1.1.1.1', 80), true)
      assert.equal((await sandbox.getInfo()).network.allowOut, undefined)
      await sandbox.updateNetwork({ allowInternetAccess: false })
      assert.equal(await resolves(sandbox, 'example.com'), false)
    })
  })

  test('lists at create, also as functions', async () => {
    const rules = { 'api.example.com': [{ transform: { headers: { 'X-Team': 'blue' } } }] }
    await withNetwork({ network: { rules, allowOut: ({ rules }) => [...rules.keys()], denyOut: ({ allTraffic }) => [allTraffic] } }, async (sandbox) => {
      assert.equal(await resolves(sandbox, 'api.example.com'), true)
      assert.equal(await resolves(sandbox, 'example.com'), false)
      const { network } = await sandbox.getInfo()
      assert.deepEqual(network.allowOut, ['api.example.com'])
      assert.deepEqual({ ...network.rules['api.example.com'][0].transform.headers }, { 'X-Team': '[sealed]' })
    })
    await withNetwork({ network: { denyOut: ['8.8.8.0/24'] } }, async (sandbox) => {
      // The policy decides about a connection before anything is dialled.
      assert.equal(await open(sandbox, '8.8.8.8', 80), false)
      assert.equal(await open(sandbox, '8.8.4.4', 80), true)
      assert.equal(await resolves(sandbox, 'example.com'), true)
    })
  })

  test('invalid network options', async () => {
    const id = (await Sandbox.create({ timeoutMs: 60_000, allowInternetAccess: false })).sandboxId
    try {
      for (const [network, text] of [
        [{ denyOut: ['example.com'] }, /invalid denied CIDR example\.com/],
        [{ allowOut: ['example.com'] }, /When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic\./],
        [{ allowOut: ['*'], denyOut: [everything] }, /invalid allowed domain \*/],
        [{ rules: { '*.example.com': [] } }, /not an exact domain/],
        [{ rules: { 'example.com': [{ transform: { headers: { Authorization: '${e2b.secrets.no_such_secret}' } } }] } }, /no_such_secret, which does not exist/],
        [{ rules: { 'example.com': [{ transform: ({ iam }) => ({ headers: { Authorization: iam.tokens.aws } }) }] } }, undefined],
      ]) {
        await rejects(Sandbox.create({ network }), Error, text)
        await rejects(Sandbox.updateNetwork(id, network), sdk.SandboxError, text)
      }
      await rejects(Sandbox.updateNetwork(id, { egressProxy: { address: 'x:1' } }), sdk.SandboxError, /501: an egress proxy is not supported/)
      await rejects(Sandbox.updateNetwork('izzzzzzzzzzzzzzzzzzz', {}), sdk.SandboxNotFoundError)
      const full = await control('GET', `/sandboxes/${id}`)
      assert.equal((await full.json()).allowInternetAccess, false, 'a refused request changed the network')
    } finally {
      await Sandbox.kill(id)
    }
  })

  test("the access field uses Crannog's own policy", async () => {
    for (const [access, reachable, why] of [[{ level: 'strict' }, false, 'the level allows no network'], [{ level: 'light', allow: ['example.com'] }, true, 'listed']]) {
      const created = await control('POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 120, access } })
      assert.equal(created.status, 201, await created.clone().text())
      const { sandboxID } = await created.json()
      try {
        const sandbox = await Sandbox.connect(sandboxID)
        assert.equal(await resolves(sandbox, 'example.com'), reachable, why)
        assert.equal(await resolves(sandbox, 'example.org'), false, 'the name is not listed')
        assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
      } finally {
        await Sandbox.kill(sandboxID)
      }
    }
  })

  test('rules with a secret, and with a value that is never shown', async () => {
    const name = `rule_${Date.now()}`
    const value = 'canary-Zq82-value-of-a-header'
    await Secret.create(name, 'canary-Zq83-value-of-a-secret')
    try {
      const rules = { 'api.example.com': [{ transform: { headers: { Authorization: `Bearer \${e2b.secrets.${name}}`, 'X-Fixed': value } } }] }
      await withNetwork({ network: { rules } }, async (sandbox) => {
        const info = await (await control('GET', `/sandboxes/${sandbox.sandboxId}`)).json()
        assert.equal(info.network.rules['api.example.com'][0].transform.headers.Authorization, `Bearer \${e2b.secrets.${name}}`)
        assert.ok(!JSON.stringify(info).includes('canary'), 'info shows a value')
        const inside = await sandbox.commands.run('env; cat /proc/1/environ 2>/dev/null | tr "\\0" "\\n"', { user: 'root' })
        assert.ok(!inside.stdout.includes('canary'), 'the sandbox has a value')
        const listed = await (await control('GET', '/secrets')).json()
        assert.deepEqual(listed.map((s) => s.name).filter((n) => n.startsWith('own')), [], 'values of a sandbox are listed')
        // Store the same values once more.
        await sandbox.updateNetwork({ rules })
        await sandbox.updateNetwork({})
      })
    } finally {
      await Secret.destroy(name)
    }
  })
})
