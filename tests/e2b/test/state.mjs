// Functions that compare a sandbox's state before and after a change.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'

import { eventually, port } from './support.mjs'

// A server with a counter and a large array. It stores each message before it answers, and reports
// which machine it runs on.
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

// startHolder starts the server and returns its process.
export async function startHolder(sandbox) {
  await sandbox.files.write('/home/user/holder.py', holder)
  const process = await sandbox.commands.run('exec python3 -u /home/user/holder.py', { background: true, timeoutMs: 0 })
  await eventually('the server inside answers', async () => (await port(sandbox, 8000)).status === 200)
  return process
}

// readHolder requests the server's state. It adds the times before and after the request, in
// seconds of this machine's clock.
export async function readHolder(sandbox) {
  const from = Date.now() / 1000
  const response = await port(sandbox, 8000)
  const to = Date.now() / 1000
  assert.equal(response.status, 200, `the server inside: ${response.status} ${response.status === 200 ? '' : await response.text()}`)
  return { ...(await response.json()), from, to }
}

// waitSeconds is how long a state is stored before the clocks in the restored sandbox are checked,
// and tolerance the permitted error. The error is smaller than the time, so that a clock that stood
// still is detected. An answer that takes longer than maxAnswerSeconds is too imprecise.
const waitSeconds = Math.min(5 * Number(process.env.CRANNOG_TEST_SPEED ?? 1), 60)
const tolerance = 1
const maxAnswerSeconds = (waitSeconds - tolerance) / 2

// letTimePass waits for waitSeconds.
export function letTimePass() {
  return new Promise((resolve) => setTimeout(resolve, waitSeconds * 1000))
}

// readHolderQuickly repeats the request until the answer is precise enough.
export async function readHolderQuickly(sandbox) {
  let now
  await eventually('the time is read quickly', async () => {
    now = await readHolder(sandbox)
    return now.to - now.from < maxAnswerSeconds
  })
  return now
}

// requireRightTime checks that the clocks inside include the time for which the state was stored.
// The earlier answer must come from readHolderQuickly.
export async function requireRightTime(sandbox, before) {
  const now = await readHolderQuickly(sandbox)
  assert.deepEqual(wrongClocks(before, now), [])
  // Control: a clock that stood still would be detected.
  for (const clock of ['clock', 'monotonic']) {
    assert.deepEqual(wrongClocks(before, { ...now, [clock]: now[clock] - waitSeconds }).map((w) => w[0]), [clock])
  }
}

// wrongClocks returns the clocks that differ from this machine's time by more than the tolerance.
function wrongClocks(before, now) {
  const passed = now.monotonic - before.monotonic
  return [
    ['clock', now.clock, now.from, now.to],
    ['monotonic', passed, now.from - before.to, now.to - before.from],
  ].filter(([, clock, earliest, latest]) => clock < earliest - tolerance || clock > latest + tolerance)
}

// requireSameMemory checks that the process continued unchanged.
export function requireSameMemory(before, after) {
  assert.equal(after.sum, before.sum)
  assert.equal(after.pid, before.pid)
  assert.equal(after.count, before.count + 1)
  assert.notEqual(after.random, before.random)
}

// createFiles creates files of many kinds.
export async function createFiles(sandbox) {
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

// tree describes all files of a sandbox: kind, mode, owner, size, times and targets, and a digest
// of each file's content.
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

// stateOf asks the control plane for a sandbox's state, which does not resume it.
export async function stateOf(sdk, sandbox) {
  return (await sdk.Sandbox.getInfo(sandbox.sandboxId)).state
}
