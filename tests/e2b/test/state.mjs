// Functions that compare a sandbox's state before and after.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'

import { eventually, port } from './support.mjs'

// A server that holds a counter and a large array, stores each message before it answers, and
// reports which machine it runs on.
const holder = `
import hashlib, http.server, json, os, sys, threading, time
big = bytearray(os.urandom(1 << 20)) * 24
count = 0
lock = threading.Lock()
log = open("/home/user/acknowledged", "a")
class Holder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        global count
        with lock:
            count += 1
            now = count
        read = lambda p: open(p).read().strip()
        self.answer(json.dumps({
            "count": now, "pid": os.getpid(), "sum": hashlib.sha256(big).hexdigest(), "clock": time.time(), "monotonic": time.monotonic(),
            "boot": read("/proc/sys/kernel/random/boot_id"), "host": os.uname().nodename, "random": os.urandom(16).hex(),
            "machine": read("/etc/machine-id") if os.path.exists("/etc/machine-id") else None,
        }).encode())
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/echo":
            return self.answer(body, "application/octet-stream")
        with lock:
            log.write(body.decode() + "\\n")
            log.flush()
            os.fsync(log.fileno())
        self.answer(body, "text/plain")
    def log_message(self, *args):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server(("127.0.0.1", 8000), Holder).serve_forever()
`

// hold starts the server and returns its process.
export async function hold(sandbox) {
  await sandbox.files.write('/home/user/holder.py', holder)
  const process = await sandbox.commands.run('exec python3 -u /home/user/holder.py', { background: true, timeoutMs: 0 })
  await eventually('the server inside answers', async () => (await port(sandbox, 8000)).status === 200)
  return process
}

// held requests the server's state. It adds the times between which the answer was made, by this
// machine's clock, in seconds.
export async function held(sandbox) {
  const from = Date.now() / 1000
  const response = await port(sandbox, 8000)
  const to = Date.now() / 1000
  assert.equal(response.status, 200, `the server inside: ${response.status} ${response.status === 200 ? '' : await response.text()}`)
  return { ...(await response.json()), from, to }
}

// How long a state is stored before the clocks in the restored sandbox are checked, and the
// permitted error. The error is smaller, so that a clock that stood still is detected. An answer
// that takes longer than quick is too imprecise.
const lain = Math.min(5 * Number(process.env.CRANNOG_TEST_SPEED ?? 1), 60)
const slack = 1
const quick = (lain - slack) / 2

// letTimePass waits that long.
export function letTimePass() {
  return new Promise((resolve) => setTimeout(resolve, lain * 1000))
}

// heldQuickly repeats the request until the answer is precise enough.
export async function heldQuickly(sandbox) {
  let now
  await eventually('the time is told quickly', async () => {
    now = await held(sandbox)
    return now.to - now.from < quick
  })
  return now
}

// rightTime checks that the clocks inside include the time for which the state was stored. The
// earlier answer must come from heldQuickly.
export async function rightTime(sandbox, before) {
  const now = await heldQuickly(sandbox)
  assert.deepEqual(wrongClocks(before, now), [])
  // Control: a clock that stood still would be detected.
  for (const clock of ['clock', 'monotonic']) {
    assert.deepEqual(wrongClocks(before, { ...now, [clock]: now[clock] - lain }).map((w) => w[0]), [clock])
  }
}

function wrongClocks(before, now) {
  const passed = now.monotonic - before.monotonic
  return [
    ['clock', now.clock, now.from, now.to],
    ['monotonic', passed, now.from - before.to, now.to - before.from],
  ].filter(([, said, least, most]) => said < least - slack || said > most + slack)
}

// sameMemory checks that the process continued unchanged.
export function sameMemory(before, after) {
  assert.equal(after.sum, before.sum)
  assert.equal(after.pid, before.pid)
  assert.equal(after.count, before.count + 1)
  assert.notEqual(after.random, before.random)
}

// furnish creates files of many kinds.
export async function furnish(sandbox) {
  const blob = Buffer.alloc(3 << 20)
  for (let i = 0; i < blob.length; i += 32) createHash('sha256').update(String(i)).digest().copy(blob, i)
  await sandbox.files.write('/home/user/kept/blob', new Blob([blob]).stream())
  await sandbox.files.write('/home/user/kept/deep/er/text', 'täxt\n')
  const made = await sandbox.commands.run([
    'cd /home/user/kept && ln -s deep/er/text link && ln blob hard && mkfifo pipe && : > empty && mkdir -m 700 closed',
    'chmod 4751 empty && truncate -s 160M holes && printf end | dd of=holes bs=1 seek=123456789 conv=notrunc status=none',
    "touch -d '2001-02-03 04:05:06.789 UTC' deep && rm -rf /home/user/.profile && mkdir -p /tmp/t && echo in tmp > /tmp/t/file",
  ].join(' && '))
  assert.equal(made.exitCode, 0)
  assert.equal(createHash('sha256').update(blob).digest('hex'), (await sandbox.commands.run('sha256sum < /home/user/kept/blob')).stdout.slice(0, 64))
}

// tree describes all of a sandbox's own files: kind, mode, owner, size, times and targets, and a
// digest of each file's content.
export async function tree(sandbox) {
  const { stdout } = await sandbox.commands.run([
    'cd / && find home/user tmp/t ! -name acknowledged -printf "%y %m %U:%G %n %s %T@ %p -> %l\\n" | sort',
    'find home/user tmp/t -type f ! -name acknowledged -size -100M -print0 | sort -z | xargs -0 sha256sum',
    'tail -c +123456780 home/user/kept/holes | head -c 20 | sha256sum',
  ].join('; '), { timeoutMs: 600_000 })
  assert.ok(stdout.split('\n').length > 20, stdout)
  return stdout
}

// bootId returns an ID that is different after a boot.
export async function bootId(sandbox) {
  return (await sandbox.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout.trim()
}

// stateOf queries the control plane, which resumes no sandbox.
export async function stateOf(sdk, sandbox) {
  return (await sdk.Sandbox.getInfo(sandbox.sandboxId)).state
}
