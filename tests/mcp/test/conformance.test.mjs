// Runs npm's conformance suite against the product's server, and against a fixture that uses the
// same HTTP layer and has the tools that the other scenarios call.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import test from 'node:test'
import { here, key, run, url } from '../common.mjs'

// Versions of the protocol. The last one has no sessions.
// make test leaves out the suite of 2025-06-18, whose sessions are those of 2025-11-25 with fewer
// answers that can be resumed.
const full = (process.env.CRANNOG_TEST_FULL ?? '') !== ''
const versions = full ? ['2025-06-18', '2025-11-25', '2026-07-28'] : ['2025-11-25', '2026-07-28']

// Scenarios that need no special tools.
const serverScenarios = ['server-initialize', 'server-session-lifecycle', 'ping', 'tools-list', 'resources-list', 'prompts-list',
  'dns-rebinding-protection', 'server-sse-multiple-streams', 'caching', 'http-header-validation', 'sep-2164-resource-not-found']

// Scenarios for extensions of the protocol that the server does not have.
const extensions = [/^tasks-/, /^sep-2640-skills-/]

// scenarios lists the suite's scenarios for a version. Only extensions are left out, so that new
// scenarios are run.
async function scenarios(version) {
  const { stdout } = await run(suite, ['list', '--server'])
  const listed = [...stdout.matchAll(/^ +- (\S+) \[(.*)\]$/gm)].map(([, name, of]) => ({ name, of: of.split(',') }))
  for (const { name, of } of listed) {
    assert.equal(extensions.some((e) => e.test(name)), of.includes('extension'), `${name} is listed for ${of}`)
  }
  return listed.filter(({ of }) => of.includes(version)).map(({ name }) => name)
}

const suite = join(here, 'node_modules/.bin/conformance')

// startKeyProxy starts a proxy to the server that adds the key, which the suite cannot do.
function startKeyProxy(t) {
  const target = new URL(url)
  const proxy = http.createServer((req, res) => {
    const headers = { ...req.headers, authorization: `Bearer ${key}` }
    const upstream = http.request({ host: target.hostname, port: target.port, method: req.method, path: req.url, headers }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers)
      answer.pipe(res)
    })
    upstream.on('error', () => res.destroy())
    res.on('close', () => upstream.destroy())
    req.pipe(upstream)
  })
  return new Promise((resolve) => proxy.listen(0, '127.0.0.1', () => {
    t.after(() => { proxy.close(); proxy.closeAllConnections() })
    resolve(`http://127.0.0.1:${proxy.address().port}/mcp`)
  }))
}

// fixture starts the server for the other scenarios and returns its URL.
function fixture(t) {
  const child = spawn(process.env.CRANNOG_TEST_FIXTURE, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill())
  return new Promise((resolve, reject) => {
    child.on('exit', (code) => reject(new Error(`the fixture ends with ${code}`)))
    child.stdout.once('data', (line) => resolve(String(line).trim()))
  })
}

// scenario runs one scenario, which must pass.
async function scenario(name, version, address) {
  const args = ['server', '--url', address, '--spec-version', version, '--scenario', name]
  const { code, stdout, stderr } = await run(suite, args, { cwd: process.env.HOME })
  assert.equal(code, 0, `${name}\n${stdout}${stderr}`)
  // A scenario that checks nothing proves nothing.
  assert.match(stdout + stderr, /Passed: [1-9].* 0 failed, 0 warnings/, `${name} checked nothing\n${stdout}${stderr}`)
}

// runSuite runs all scenarios in one process and returns the checks of each by its name.
async function runSuite(t, version, address) {
  const dir = mkdtempSync(join(process.env.HOME, 'results-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const args = ['server', '--url', address, '--suite', 'all', '--spec-version', version, '--output-dir', dir]
  const { stdout, stderr } = await run(suite, args, { cwd: process.env.HOME })
  const found = new Map()
  for (const entry of readdirSync(dir)) {
    // A directory's name has the scenario between its kind and the time.
    const [, name] = /^server-(.+?)-\d{4}-\d\d-\d\dT/.exec(entry) ?? assert.fail(`${entry}\n${stdout}${stderr}`)
    found.set(name, JSON.parse(readFileSync(join(dir, entry, 'checks.json'), 'utf8')))
  }
  return found
}

function assertPassed(checks) {
  assert.ok(checks, 'the scenario was not run')
  const failed = checks.filter(({ status }) => status === 'FAILURE' || status === 'WARNING')
  assert.deepEqual(failed, [])
  // A scenario that checks nothing proves nothing.
  assert.ok(checks.some(({ status }) => status === 'SUCCESS'), 'the scenario checked nothing')
}

for (const version of versions) {
  test(`the server passes in ${version}`, { concurrency: 4 }, async (t) => {
    const address = await startKeyProxy(t)
    const names = (await scenarios(version)).filter((name) => serverScenarios.includes(name))
    assert.ok(names.length >= 6, `the suite has only ${names}`)
    await Promise.all(names.map((name) => t.test(name, () => scenario(name, version, address))))
  })

  test(`the layer passes in ${version}`, async (t) => {
    const address = await fixture(t)
    const names = await scenarios(version)
    assert.ok(names.length >= 25, `the suite has only ${names}`)
    const results = await runSuite(t, version, address)
    for (const name of names) await t.test(name, () => assertPassed(results.get(name)))
  })
}

test('control: a scenario without its tool fails', async (t) => {
  await assert.rejects(scenario('tools-call-image', '2025-11-25', await startKeyProxy(t)), /tools-call-image/)
})
