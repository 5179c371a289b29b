// Measures how long it takes from a request to the first screenshot: in a sandbox that continues from
// the template's memory, in one that boots, because other limits do not fit that memory, and with the
// host's Chromium. CRANNOG_URL is the server, and CRANNOG_KEY a key.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { chromium } from 'playwright-core'

const { CRANNOG_URL: url, CRANNOG_KEY: key } = process.env
const page = 'data:text/html,<body style="background:teal">'

const call = async (method, path, body) => {
  const r = await fetch(url + '/v1' + path, {
    method, headers: { Authorization: 'Bearer ' + key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body)
  })
  if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${await r.text()}`)
  return r.status === 204 ? undefined : r.json()
}

const sandboxed = async (name, limits) => {
  const began = performance.now()
  const sb = await call('POST', '/sandboxes', { template: 'browser', timeout_seconds: 600, limits })
  try {
    const created = performance.now()
    const browser = await chromium.connectOverCDP(url, {
      headers: { 'E2b-Sandbox-Id': sb.id, 'E2b-Sandbox-Port': '49222', 'X-Access-Token': sb.access_token }
    })
    const first = browser.contexts()[0].pages()[0]
    await first.goto(page)
    if ((await first.screenshot()).length < 100) throw new Error('the screenshot is empty')
    const shot = performance.now()
    await browser.close()
    const use = (await call('GET', `/sandboxes/${sb.id}/metrics`)).metrics.at(-1)
    console.log(`${name}: created after ${Math.round(created - began)} ms, screenshot after ${Math.round(shot - began)} ms, memory ${use.mem_used_bytes >> 20} MiB`)
  } finally {
    await call('DELETE', '/sandboxes/' + sb.id)
  }
}

for (let i = 0; i < 3; i++) {
  await sandboxed('from memory')
  await sandboxed('with a boot', { memory_bytes: 1200 * 1024 * 1024 })
  const profile = mkdtempSync('/tmp/crannog-measure-')
  const began = performance.now()
  const r = spawnSync('chromium', ['--headless', '--no-sandbox', '--disable-gpu', '--user-data-dir=' + profile, `--screenshot=${profile}/shot.png`, page])
  if (r.status === 0) console.log(`host: screenshot after ${Math.round(performance.now() - began)} ms`)
  rmSync(profile, { recursive: true })
}
