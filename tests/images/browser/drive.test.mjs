// Drives the browser of a sandbox with unmodified clients from npm, through a server.
//   CRANNOG_URL      the server
//   CRANNOG_SANDBOX  ID of a sandbox of the template browser in which site.pl runs
//   CRANNOG_TOKEN    its access token
//   CRANNOG_REACHED  an address that its policy permits, with JSON that has a name, and
//   CRANNOG_DENIED   one of the same host that it does not
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'

const { CRANNOG_URL: url, CRANNOG_SANDBOX: sandbox, CRANNOG_TOKEN: token, CRANNOG_REACHED: reached, CRANNOG_DENIED: denied } = process.env
const route = { 'E2b-Sandbox-Id': sandbox, 'E2b-Sandbox-Port': '49222' }
const headers = { ...route, 'X-Access-Token': token }
const socket = url.replace(/^http/, 'ws') + '/devtools/browser'
const site = 'http://localhost:8000/'

const file = async path => {
  const r = await fetch(`${url}/files?path=${encodeURIComponent(path)}`, { headers: { ...headers, 'E2b-Sandbox-Port': '49983' } })
  assert.equal(r.status, 200, `${path}: ${r.status}`)
  return Buffer.from(await r.arrayBuffer())
}
const sum = data => createHash('sha256').update(data).digest('hex')

// withPage runs a function with a page of a new context of Playwright.
const withPage = async work => {
  const browser = await chromium.connectOverCDP(url, { headers })
  try {
    const context = await browser.newContext({ viewport: { width: 640, height: 480 } })
    try {
      return await work(await context.newPage(), context, browser)
    } finally {
      await context.close()
    }
  } finally {
    await browser.close()
  }
}

// pixel decodes an image in the page's browser and returns one pixel.
const pixel = (page, png, x, y) => page.evaluate(async ([data, x, y]) => {
  const image = await createImageBitmap(await (await fetch('data:image/png;base64,' + data)).blob())
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d')
  canvas.drawImage(image, 0, 0)
  return [...canvas.getImageData(x, y, 1, 1).data]
}, [png.toString('base64'), x, y])

test('without the token nothing is reachable', async () => {
  for (const h of [route, { ...route, 'X-Access-Token': 'wrong' }, { ...route, 'E2b-Traffic-Access-Token': token }]) {
    for (const path of ['/json/version', '/json/list', '/crannog/status', '/devtools/browser', '/']) {
      assert.equal((await fetch(url + path, { headers: h })).status, 403, path)
    }
    await assert.rejects(chromium.connectOverCDP(url, { headers: h }), /403/)
    await assert.rejects(chromium.connectOverCDP(socket, { headers: h }), /403/)
    await assert.rejects(puppeteer.connect({ browserWSEndpoint: socket, headers: h }))
  }
  // Control: the same requests with the token.
  const r = await fetch(url + '/json/version', { headers })
  assert.equal(r.status, 200)
  assert.equal((await r.json()).webSocketDebuggerUrl, socket)
  await (await puppeteer.connect({ browserWSEndpoint: socket, headers })).disconnect()
})

test('pages in a browser may not use the port, also with the token', async () => {
  for (const h of [{ Origin: 'http://127.0.0.1:49222' }, { 'Sec-Fetch-Site': 'same-origin' }]) {
    assert.equal((await fetch(url + '/json/version', { headers: { ...headers, ...h } })).status, 403)
  }
  await withPage(async page => {
    await page.goto(site + 'page.html')
    assert.equal(await page.evaluate(() => new Promise(done => {
      const s = new WebSocket('ws://127.0.0.1:49222/devtools/browser')
      s.onopen = () => done('open')
      s.onerror = () => done('refused')
    })), 'refused')
  })
})

test('Playwright renders, reads the accessibility tree and prints', () => withPage(async page => {
  await page.goto(site + 'page.html')
  assert.deepEqual(await pixel(page, await page.screenshot(), 5, 5), [0x12, 0xab, 0x34, 255])
  const tree = await page.locator('body').ariaSnapshot()
  assert.match(tree, /heading "The lake dwelling"/)
  assert.match(tree, /button "Row ashore"/)
  const pdf = await page.pdf({ printBackground: true })
  assert.equal(pdf.subarray(0, 5).toString(), '%PDF-')
  assert.ok((pdf.toString('latin1').match(/\/Type\s*\/Page\b/g) || []).length >= 1, 'the PDF has no page')
}))

test("Chromium's own sandbox is on", () => withPage(async page => {
  await page.goto('chrome://sandbox')
  const text = await page.locator('body').innerText()
  assert.match(text, /Layer 1 Sandbox\s+Namespace/)
  assert.match(text, /Seccomp-BPF sandbox\s+Yes/)
}))

test('WebAssembly, a service worker, audio and video', () => withPage(async page => {
  await page.goto(site + 'page.html')
  assert.equal(await page.evaluate(async () => {
    // (func (export "f") (result i32) i32.const 42)
    const code = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 6, 1, 4, 0, 65, 42, 11])
    return (await WebAssembly.instantiate(code)).instance.exports.f()
  }), 42)
  assert.equal(await page.evaluate(async () => {
    await navigator.serviceWorker.register('/worker.js')
    await navigator.serviceWorker.ready
    if (!navigator.serviceWorker.controller) await new Promise(r => navigator.serviceWorker.addEventListener('controllerchange', r, { once: true }))
    return (await fetch('/answer.js')).text()
  }), 'from the service worker')
  assert.equal(await page.evaluate(() => new Promise((done, fail) => {
    const samples = 4000, wav = new DataView(new ArrayBuffer(44 + 2 * samples))
    const text = (at, s) => [...s].forEach((c, i) => wav.setUint8(at + i, c.charCodeAt(0)))
    text(0, 'RIFF'); wav.setUint32(4, 36 + 2 * samples, true); text(8, 'WAVEfmt '); wav.setUint32(16, 16, true)
    wav.setUint16(20, 1, true); wav.setUint16(22, 1, true); wav.setUint32(24, 8000, true); wav.setUint32(28, 16000, true)
    wav.setUint16(32, 2, true); wav.setUint16(34, 16, true); text(36, 'data'); wav.setUint32(40, 2 * samples, true)
    for (let i = 0; i < samples; i++) wav.setInt16(44 + 2 * i, 9000 * Math.sin(i / 3), true)
    const audio = new Audio(URL.createObjectURL(new Blob([wav], { type: 'audio/wav' })))
    audio.onended = () => done('played ' + audio.duration)
    audio.onerror = () => fail(new Error(audio.error.message))
    audio.play().catch(fail)
  })), 'played 0.5')
  assert.equal(await page.evaluate(async () => {
    const canvas = document.createElement('canvas')
    canvas.width = canvas.height = 64
    const paint = canvas.getContext('2d')
    const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: 'video/webm' })
    const parts = []
    recorder.ondataavailable = e => parts.push(e.data)
    recorder.start()
    for (let i = 0; i < 10; i++) {
      paint.fillStyle = i % 2 ? '#f00' : '#00f'
      paint.fillRect(0, 0, 64, 64)
      await new Promise(requestAnimationFrame)
      await new Promise(r => setTimeout(r, 50))
    }
    recorder.stop()
    await new Promise(r => { recorder.onstop = r })
    const video = document.createElement('video')
    video.muted = true
    video.src = URL.createObjectURL(new Blob(parts, { type: 'video/webm' }))
    await video.play()
    await new Promise((done, fail) => { video.onended = done; video.onerror = () => fail(new Error(video.error.message)) })
    return `${video.videoWidth}x${video.videoHeight}`
  }), '64x64')
}))

test('downloads and uploads', async () => {
  await withPage(async (page, context, browser) => {
    await page.goto(site + 'page.html')
    const cdp = await browser.newBrowserCDPSession()
    await cdp.send('Browser.setDownloadBehavior', { behavior: 'allowAndName', downloadPath: '/home/user/Downloads', eventsEnabled: true, browserContextId: (await (await context.newCDPSession(page)).send('Target.getTargetInfo')).targetInfo.browserContextId })
    const done = new Promise((ok, fail) => cdp.on('Browser.downloadProgress', e => {
      if (e.state === 'completed') ok(e.guid)
      if (e.state === 'canceled') fail(new Error('the download was canceled'))
    }))
    await page.getByText('Fetch').click()
    assert.equal(sum(await file('/home/user/Downloads/' + await done)), sum(await file('/home/user/site/load.bin')))

    await page.setInputFiles('#file', { name: 'cargo.txt', mimeType: 'text/plain', buffer: Buffer.from('peat') })
    assert.equal(await page.evaluate(() => document.querySelector('#file').files[0].text()), 'peat')
  })
  const browser = await puppeteer.connect({ browserWSEndpoint: socket, headers })
  try {
    const page = await browser.newPage()
    await page.goto(site + 'page.html')
    const input = await page.$('#file')
    await input.uploadFile('/home/user/site/worker.js') // a file of the sandbox
    assert.equal(await page.evaluate(() => document.querySelector('#file').files[0].text()), (await file('/home/user/site/worker.js')).toString())
    await page.close()
  } finally {
    await browser.disconnect()
  }
})

test('Puppeteer renders, reads the accessibility tree and prints', async () => {
  const browser = await puppeteer.connect({ browserWSEndpoint: socket, headers })
  try {
    const page = await browser.newPage()
    await page.goto(site + 'page.html')
    assert.deepEqual(await pixel(page, Buffer.from(await page.screenshot()), 5, 5), [0x12, 0xab, 0x34, 255])
    assert.ok(JSON.stringify(await page.accessibility.snapshot()).includes('The lake dwelling'))
    assert.equal(Buffer.from(await page.pdf()).subarray(0, 5).toString(), '%PDF-')
    await page.close()
  } finally {
    await browser.disconnect()
  }
})

test('two sessions at once do not see each other', () => withPage(page => withPage(async other => {
  await Promise.all([page.goto(site + 'page.html'), other.goto(site + 'page.html')])
  await page.evaluate(() => localStorage.setItem('who', 'one'))
  assert.equal(await other.evaluate(() => localStorage.getItem('who')), null)
  assert.equal(await page.evaluate(() => localStorage.getItem('who')), 'one')
})))

test('the policy applies, and the certificate of the gateway is trusted', () => withPage(async page => {
  const answer = await page.goto(reached)
  assert.equal(answer.status(), 200)
  assert.ok(JSON.parse(await answer.text()).name)
  const refused = await page.goto(denied)
  assert.equal(refused.status(), 403)
  assert.match(await page.locator('body').innerText(), /Crannog blocked this page/)
  assert.match(refused.headers()['x-crannog-blocked'], /^blocked GET .* rule=/)
  await assert.rejects(page.goto('https://denied.example/'), /net::ERR_NAME_NOT_RESOLVED/)
}))

test('a killed browser comes back, and the reason is reported', async () => {
  const status = async () => (await fetch(url + '/crannog/status', { headers })).json()
  const before = await status()
  const browser = await chromium.connectOverCDP(url, { headers })
  const gone = new Promise(r => browser.on('disconnected', r))
  const crash = await browser.newBrowserCDPSession()
  crash.send('Browser.crash').catch(() => {}) // there is no answer
  await gone
  await withPage(async page => {
    await page.goto(site + 'page.html')
    assert.equal(await page.title(), 'Crannog')
  })
  const after = await status()
  assert.equal(after.starts, before.starts + 1)
  assert.equal(after.running, true)
  assert.match(after.ends.at(-1).reason, /signal|exit status/)
})
