// The unmodified @e2b/desktop from npm, against a server with the template desktop. The program that
// runs it sets E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY.
import assert from 'node:assert/strict'
import http from 'node:http'
import { after, before, describe, test } from 'node:test'

import { Sandbox } from '@e2b/desktop'

import { changed, colours, decode, share } from './picture.mjs'
import { connect } from './rfb.mjs'

const limit = 900_000 * Number(process.env.CRANNOG_TEST_SPEED ?? 1)

async function eventually(what, condition) {
  for (const end = Date.now() + limit / 6; ;) {
    const got = await condition()
    if (got) return got
    assert.ok(Date.now() < end, `gave up waiting until ${what}`)
    await new Promise((done) => setTimeout(done, 100))
  }
}

// windows returns the visible windows of a class; the SDK fails while there is none.
const windows = (desktop, name) => desktop.getApplicationWindows(name).catch(() => [])

const shot = async (desktop) => decode(await desktop.screenshot())

// events starts xev in a window at 100,100 and returns a function that resolves to what it has read.
async function events(desktop) {
  await desktop.commands.run('xev -geometry 400x300+100+100 -name events >/tmp/events', { background: true, timeoutMs: 0 })
  await eventually('xev has a window', async () => (await desktop.commands.run('xdotool search --onlyvisible --name ^events$ || true')).stdout)
  return () => desktop.files.read('/tmp/events')
}

const count = (log, pattern) => (log.match(pattern) ?? []).length

describe('@e2b/desktop', { timeout: limit }, () => {
  let desktop
  before(async () => {
    desktop = await Sandbox.create({ timeoutMs: 3600_000 })
  })
  after(() => desktop?.kill())

  test('the screen is there when create returns', async () => {
    const picture = await shot(desktop)
    assert.deepEqual([picture.width, picture.height], [1024, 768])
    assert.ok(colours(picture) > 50, `a picture of ${colours(picture)} colours`)
    assert.deepEqual(await desktop.getScreenSize(), { width: 1024, height: 768 })
    // It is the session that the template was saved with, and the only one.
    assert.equal((await desktop.commands.run('pgrep -xc xfce4-session')).stdout.trim(), '1')
    assert.equal((await desktop.commands.run('pgrep -f "^/usr/bin/Xvfb" | wc -l')).stdout.trim(), '1')
  })

  test('a screenshot as bytes, blob and stream is a picture of the same screen', async () => {
    const bytes = await desktop.screenshot()
    const blob = Buffer.from(await (await desktop.screenshot('blob')).arrayBuffer())
    const parts = []
    for await (const part of await desktop.screenshot('stream')) parts.push(part)
    for (const other of [blob, Buffer.concat(parts)]) {
      assert.ok(changed(decode(bytes), decode(other)) < 0.05)
    }
  })

  test('the pointer moves, clicks, scrolls and drags', async () => {
    const log = await events(desktop)
    await desktop.moveMouse(300, 250)
    assert.deepEqual(await desktop.getCursorPosition(), { x: 300, y: 250 })
    for (const [what, call, button, times] of [
      ['leftClick', () => desktop.leftClick(310, 260), 1, 1],
      ['doubleClick', () => desktop.doubleClick(320, 260), 1, 2],
      ['middleClick', () => desktop.middleClick(330, 260), 2, 1],
      ['rightClick', () => desktop.rightClick(340, 260), 3, 1],
      ['scroll up', () => desktop.scroll('up', 3), 4, 3],
      ['scroll down', () => desktop.scroll('down', 2), 5, 2],
    ]) {
      const exactly = async () => count(await log(), new RegExp(`^ButtonPress event.*\\n.*\\n.*button ${button},`, 'gm'))
      const before = await exactly()
      await call()
      await eventually(`${what} has arrived`, async () => (await exactly()) === before + times)
    }
    assert.deepEqual(await desktop.getCursorPosition(), { x: 340, y: 260 })
    const before = count(await log(), /^ButtonRelease event.*\n.*\n.*button 1,/gm)
    await desktop.mousePress()
    await eventually('the button is held', async () => (await log()).trimEnd().match(/state 0x[0-9a-f]+, button 1[^]*$/))
    assert.equal(count(await log(), /^ButtonRelease event.*\n.*\n.*button 1,/gm), before)
    await desktop.mouseRelease()
    await eventually('the button is released', async () => count(await log(), /^ButtonRelease event.*\n.*\n.*button 1,/gm) === before + 1)
    await desktop.drag([200, 200], [420, 330])
    // 0x100 is the first button, held while the pointer moved.
    await eventually('the drag has arrived', async () => /MotionNotify event.*\n.*root:\(420,330\),\n.*state 0x100,/.test(await log()))
    assert.deepEqual(await desktop.getCursorPosition(), { x: 420, y: 330 })
  })

  test('keys and combinations of keys arrive', async () => {
    const log = () => desktop.files.read('/tmp/events')
    await desktop.leftClick(300, 250)
    await desktop.press('enter')
    await desktop.press(['ctrl', 'shift', 'a'])
    await eventually('Return has arrived', async () => /KeyPress event.*\n.*\n.*keysym 0x[0-9a-f]+, Return/.test(await log()))
    // 0x4 is Control and 0x1 Shift.
    await eventually('the combination has arrived', async () => /KeyPress event.*\n.*\n.*state 0x5, .*keysym 0x[0-9a-f]+, [aA]\)/.test(await log()))
    await desktop.commands.run('pkill -x xev')
  })

  test('an application is launched, and typed text arrives in it', async () => {
    await desktop.launch('xfce4-terminal')
    const [id] = await eventually('the terminal has a window', async () => {
      const found = (await windows(desktop, 'xfce4-terminal')).filter(Boolean)
      return found.length && found
    })
    await eventually('the terminal has a title', async () => /Terminal/.test(await desktop.getWindowTitle(id)))
    await desktop.commands.run(`xdotool windowactivate --sync ${id}`)
    assert.equal(await desktop.getCurrentWindowId(), id)
    await desktop.write('cat >/tmp/typed')
    await desktop.press('enter')
    await eventually('cat runs', async () => (await desktop.commands.run('pgrep -x cat || true')).stdout)
    const text = `It's "quoted" $HOME \`x\` ${'0123456789'.repeat(4)} äöü ß é € – Ж 日本`
    await desktop.write(text, { chunkSize: 20, delayInMs: 100 })
    await desktop.press('enter')
    await desktop.press(['ctrl', 'd'])
    await eventually('cat has ended', async () => !(await desktop.commands.run('pgrep -x cat || true')).stdout)
    assert.equal(await desktop.files.read('/tmp/typed'), `${text}\n`)
    await desktop.commands.run('pkill -x xfce4-terminal')
  })

  test('a window of a colour is in the picture, where it is', async () => {
    const red = [0xc0, 0x20, 0x40]
    const before = await shot(desktop)
    assert.equal(share(before, [250, 200, 450, 400], red), 0)
    await desktop.commands.run('xfce4-terminal --disable-server --color-bg "#c02040" --geometry 60x20+200+150', { background: true, timeoutMs: 0 })
    await eventually('the picture has the colour', async () => share(await shot(desktop), [250, 250, 450, 400], red) > 0.9)
    await desktop.commands.run('pkill -x xfce4-terminal')
    await eventually('the colour is gone', async () => share(await shot(desktop), [250, 250, 450, 400], red) === 0)
  })

  test('files and addresses are opened with their applications', async () => {
    await desktop.files.write('/home/user/note.txt', 'a note\n')
    await desktop.open('/home/user/note.txt')
    const [editor] = await eventually('the editor has a window', async () => {
      const found = (await windows(desktop, 'mousepad')).filter(Boolean)
      return found.length && found
    })
    await eventually('the editor shows the file', async () => (await desktop.getWindowTitle(editor)).includes('note.txt'))
    await desktop.open('/home/user')
    await eventually('the file manager has a window', async () => (await windows(desktop, 'thunar')).filter(Boolean).length)
    await desktop.files.write('/home/user/page.html', '<title>first page</title><body style="background:#20c040">')
    await desktop.open('file:///home/user/page.html')
    await eventually('the browser shows the page', async () => {
      const titles = await Promise.all((await windows(desktop, 'chromium')).filter(Boolean).map((id) => desktop.getWindowTitle(id).catch(() => '')))
      return titles.some((title) => title.includes('first page'))
    })
    const green = [0x20, 0xc0, 0x40]
    await eventually('the picture has the page', async () => share(await shot(desktop), [450, 400, 650, 600], green) > 0.9)
  })

  test('wait waits, and waitAndVerify reports what a command did', async () => {
    await desktop.wait(10)
    assert.equal(await desktop.waitAndVerify('echo yes', (r) => r.stdout.trim() === 'yes'), true)
    assert.equal(await desktop.waitAndVerify('exit 1', () => true, 1), false)
  })

  // attach is the stream as a page sees it: the address of getUrl, served under its host name.
  const attach = (password) => {
    const headers = { 'E2b-Sandbox-Id': desktop.sandboxId, 'E2b-Sandbox-Port': '6080' }
    return connect(new URL('/websockify', process.env.E2B_SANDBOX_URL.replace(/^http/, 'ws')), headers, password)
  }

  test('a stream without a password has its page and the screen', async () => {
    assert.throws(() => desktop.stream.getUrl(), /Server is not running/)
    await desktop.stream.start()
    await assert.rejects(() => desktop.stream.start(), /already running/)
    assert.throws(() => desktop.stream.getAuthKey(), /requireAuth/)
    const url = new URL(desktop.stream.getUrl({ viewOnly: true }))
    assert.equal(url.hostname.split('.')[0], `6080-${desktop.sandboxId}`)
    assert.deepEqual(Object.fromEntries(url.searchParams), { autoconnect: 'true', view_only: 'true', resize: 'scale' })
    assert.match(await get(url), /noVNC/)
    const client = await attach()
    assert.deepEqual([client.width, client.height], [1024, 768])
    const [picture, { pixels }] = [await client.pixels(), await shot(desktop)]
    client.close()
    let same = 0 // RFB has blue first
    for (let i = 0; i < pixels.length; i += 4) if (picture[i] === pixels[i + 2] && picture[i + 1] === pixels[i + 1] && picture[i + 2] === pixels[i]) same++
    assert.ok(same / (1024 * 768) > 0.95, `${same} pixels are as in the screenshot`)
    await desktop.stream.stop()
    // The SDK sends a signal to the VNC server, and does not wait for its end.
    await eventually('the VNC server has ended', async () => !(await desktop.commands.run('pgrep -x x11vnc || true')).stdout)
    await assert.rejects(() => attach())
  })

  test('a stream with a password requires it', async () => {
    await desktop.stream.start({ requireAuth: true })
    const key = desktop.stream.getAuthKey()
    assert.equal(new URL(desktop.stream.getUrl({ authKey: key })).searchParams.get('password'), key)
    await assert.rejects(() => attach(), /security types 2/)
    await assert.rejects(() => attach('wrong'), /refused/)
    const client = await attach(key)
    assert.deepEqual([client.width, client.height], [1024, 768])
    client.close()
    await desktop.stream.stop()
  })

  test('another resolution replaces the screen', async () => {
    const other = await Sandbox.create({ timeoutMs: 3600_000, resolution: [800, 600], dpi: 72 })
    try {
      assert.deepEqual(await other.getScreenSize(), { width: 800, height: 600 })
      assert.equal((await other.commands.run('pgrep -xc xfce4-session')).stdout.trim(), '1')
      await eventually('the screen is painted', async () => colours(await shot(other)) > 50)
    } finally {
      await other.kill()
    }
  })
})

// get requests a page by its host name from the server, which speaks plain HTTP.
function get(url) {
  const { hostname, port } = new URL(process.env.E2B_SANDBOX_URL)
  return new Promise((resolve, reject) => {
    http.get({ hostname, port, path: url.pathname + url.search, headers: { Host: url.host } }, (response) => {
      let text = ''
      response.on('data', (part) => (text += part)).on('end', () => (response.statusCode === 200 ? resolve(text) : reject(new Error(`${response.statusCode}: ${text}`))))
    }).on('error', reject)
  })
}
