import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import http from 'node:http'
import { test } from 'node:test'

import { WebSocket } from 'undici'

import { eventually, withSdk, withSandbox, port, sandboxUrl } from './support.mjs'

// tell is a server that returns the request that it received, and echo one that returns a
// WebSocket's messages. Both use only Python's standard library.
const tell = `
import http.server, json
class Tell(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Inside", "yes")
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Tell).serve_forever()
`
const echo = `
import base64, hashlib, socket, struct
def exactly(c, n):
    data = b""
    while len(data) < n:
        part = c.recv(n - len(data))
        if not part:
            raise SystemExit
        data += part
    return data
s = socket.create_server(("127.0.0.1", 8001))
c, _ = s.accept()
head = b""
while not head.endswith(b"\\r\\n\\r\\n"):
    head += c.recv(1)
key = [l.split(b": ")[1] for l in head.split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key")][0]
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
while True:
    first, second = exactly(c, 2)
    n = second & 127
    if n == 126:
        n, = struct.unpack(">H", exactly(c, 2))
    mask = exactly(c, 4)
    data = bytes(b ^ mask[i % 4] for i, b in enumerate(exactly(c, n)))
    head = bytes([first, n]) if n < 126 else bytes([first, 126]) + struct.pack(">H", n)
    c.sendall(head + data)
    if first & 15 == 8:
        break
`

// slow is a server that reads the request slowly and returns its digest.
const slow = `
import hashlib, http.server, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        time.sleep(0.5)
        while left:
            part = self.rfile.read(min(left, 65536))
            digest.update(part)
            left -= len(part)
            time.sleep(0.002)
        body = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", 8002), Slow).serve_forever()
`

// v6only is a server that listens on all IPv6 addresses and on no IPv4 address.
const v6only = `
import http.server, socket
class V6(http.server.HTTPServer):
    address_family = socket.AF_INET6
    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()
import os; os.chdir("/etc")
V6(("::", 8012), http.server.SimpleHTTPRequestHandler).serve_forever()
`

// requestByHost sends a request with its own Host header, which fetch does not allow.
function requestByHost(host, path = '/', headers = {}) {
  return new Promise((done, fail) => {
    const url = new URL(path, sandboxUrl)
    http.get(url, { headers: { ...headers, Host: host } }, (response) => {
      let text = ''
      response.on('data', (chunk) => (text += chunk))
      response.on('end', () => done({ status: response.statusCode, headers: response.headers, text }))
      response.on('error', fail)
    }).on('error', fail)
  })
}

withSandbox('ports', (sdk, shared) => {
  test('a web server inside', async () => {
    const { sandbox } = shared
    await sandbox.files.write('site/index.html', '<h1>inside</h1>')
    await sandbox.commands.run('python3 -m http.server 8080 --directory site --bind 127.0.0.1', { background: true })
    // The server may not listen yet; then the request is repeated.
    const response = await eventually('the page', async () => {
      const got = await port(sandbox, 8080, '/index.html')
      return got.status === 200 && got
    })
    assert.equal(await response.text(), '<h1>inside</h1>')
    assert.equal((await port(sandbox, 8080, '/missing')).status, 404)
  })

  test('by headers and by host name, unchanged', async () => {
    const { sandbox } = shared
    await sandbox.files.write('tell.py', tell)
    await sandbox.commands.run('python3 tell.py', { background: true })
    await eventually('the server listens', async () => (await port(sandbox, 8000)).status === 200)
    const answer = await port(sandbox, 8000, '/a%2fb//c?x=1&y=%20', { headers: { 'X-Mine': 'v', 'X-Crannog-Control': 'guess' } })
    assert.equal(answer.headers.get('x-inside'), 'yes')
    const seen = await answer.json()
    assert.equal(seen.path, '/a%2fb//c?x=1&y=%20')
    assert.equal(seen.headers['X-Mine'], 'v')
    assert.equal(seen.headers['X-Crannog-Control'], undefined)

    const host = `8000-${sandbox.sandboxId}.sbx.example`
    const named = await requestByHost(host, '/by/host')
    assert.equal(named.status, 200)
    assert.equal(JSON.parse(named.text).path, '/by/host')
    assert.equal(JSON.parse(named.text).headers.Host, host)
    assert.ok(sandbox.getHost(8000).startsWith(`8000-${sandbox.sandboxId}.`))
  })

  test('a large upload to a program that reads slowly', async () => {
    const { sandbox } = shared
    await sandbox.files.write('slow.py', slow)
    await sandbox.commands.run('python3 slow.py', { background: true })
    const body = randomBytes(8 << 20)
    const response = await eventually('the server listens', async () => {
      const got = await port(sandbox, 8002, '/', { method: 'POST', body })
      return got.status === 200 && got
    })
    assert.equal(await response.text(), createHash('sha256').update(body).digest('hex'))
  })

  test('a WebSocket', async () => {
    const { sandbox } = shared
    await sandbox.files.write('echo.py', echo)
    const server = await sandbox.commands.run('python3 echo.py', { background: true })
    const socket = new WebSocket(new URL('/ws', sandboxUrl.replace(/^http/, 'ws')), {
      headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8001' },
    })
    const messages = []
    socket.addEventListener('message', (event) => messages.push(event.data))
    await new Promise((done, fail) => {
      socket.addEventListener('open', done)
      socket.addEventListener('error', (event) => fail(event.error ?? new Error('the WebSocket failed')))
    })
    socket.send('hello')
    socket.send('x'.repeat(5000))
    await eventually('both messages come back', () => messages.length === 2)
    assert.deepEqual(messages, ['hello', 'x'.repeat(5000)])
    socket.close()
    await server.kill()
  })

  test('F5: a server on any address of the sandbox', async () => {
    const { sandbox } = shared
    await sandbox.files.write('v6only.py', v6only)
    const servers = [['127.0.0.2', 8010, 'http.server 8010 --bind 127.0.0.2'], ['::1', 8011, 'http.server 8011 --bind ::1']]
    for (const [, , module] of servers) await sandbox.commands.run(`python3 -m ${module} --directory /etc`, { background: true })
    await sandbox.commands.run('python3 v6only.py', { background: true })
    for (const [address, number] of [...servers, ['IPv6 only', 8012]]) {
      await eventually(`${address} answers`, async () => (await port(sandbox, number, '/hostname')).status === 200)
    }
  })

  test('a port without a listener', async () => {
    const response = await port(shared.sandbox, 9)
    assert.equal(response.status, 502)
    assert.deepEqual(await response.json(), {
      sandboxId: shared.sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 9, code: 502,
    })
    const page = await requestByHost(`9-${shared.sandbox.sandboxId}.sbx.example`, '/', { Accept: 'text/html' })
    assert.equal(page.status, 502)
    assert.match(page.headers['content-type'], /text\/html/)
  })

  test("the guest's private paths", async () => {
    for (const path of ['/_crannog/ready', '/_crannog/update', '//_crannog/ready', '/%5fcrannog/ready', '/init', '/INIT', '/freeze', '/upgrade']) {
      for (const method of ['GET', 'POST']) {
        const response = await port(shared.sandbox, 49983, `${sandboxUrl}${path}`, { method, headers: { 'X-Crannog-Control': 'x' } })
        assert.equal(response.status, 404, `${method} ${path}`)
        assert.match((await response.json()).message, /^This endpoint is reserved/)
      }
    }
  })

  test("the guest's own port needs the token", async () => {
    const response = await port(shared.sandbox, 49983, '/process.Process/List', {
      method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Access-Token': 'wrong' }, body: '{}',
    })
    assert.equal(response.status, 401)
    assert.equal((await response.json()).code, 401)
    assert.equal((await port(shared.sandbox, 49983, '/health')).status, 204)
  })
})

withSdk('private ports', (sdk) => {
  test('need the traffic token, and see a masked host', async () => {
    const sandbox = await sdk.Sandbox.create({ network: { allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}' } })
    try {
      assert.ok(sandbox.trafficAccessToken)
      await sandbox.files.write('tell.py', tell)
      await sandbox.commands.run('python3 tell.py', { background: true })
      const withToken = { headers: { 'E2b-Traffic-Access-Token': sandbox.trafficAccessToken } }
      const response = await eventually('the server listens', async () => {
        const got = await port(sandbox, 8000, '/', withToken)
        return got.status === 200 && got
      })
      assert.equal((await response.json()).headers.Host, 'localhost:8000')
      for (const init of [{}, { headers: { 'E2b-Traffic-Access-Token': 'x' } }]) {
        const refused = await port(sandbox, 8000, '/', init)
        assert.equal(refused.status, 403)
        assert.equal((await refused.json()).code, 403)
      }
      const { network } = await sandbox.getInfo()
      assert.equal(network.allowPublicTraffic, false)
    } finally {
      await sandbox.kill()
    }
  })
})
