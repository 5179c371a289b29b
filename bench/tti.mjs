// Measures servers with the unmodified npm client e2b: the same steps in turns, then many at once.
// It prints one JSON object for each duration.
//
//   node tti.mjs PACKAGE.JSON '{"rounds":20,"crowd":100,"servers":[{"name":"…","url":"…","key":"…","runs":true}]}'
import { createRequire } from 'node:module'

const { Sandbox } = createRequire(process.argv[2])('e2b')
const plan = JSON.parse(process.argv[3])

function report(server, what, began) {
  console.log(JSON.stringify({ server: server.name, what, ms: performance.now() - began }))
}

async function command(sandbox, server, text, expected) {
  const result = await sandbox.commands.run(text)
  if (server.runs && !expected.test(result.stdout)) {
    throw new Error(`${server.name}: ${text} printed ${JSON.stringify(result.stdout)}`)
  }
}

async function life(server, suffix, counted) {
  const score = (what, began) => counted && report(server, what + suffix, began)
  const began = performance.now()
  const sandbox = await Sandbox.create({
    apiUrl: server.url, sandboxUrl: server.url, apiKey: server.key, timeoutMs: 600_000, requestTimeoutMs: 300_000,
  })
  score('create', began)
  try {
    await command(sandbox, server, 'echo ok', /^ok\n$/)
    score('first command', began)
    await command(sandbox, server, 'node -v', /^v\d/)
    score('both commands', began)
  } finally {
    await sandbox.kill()
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms))

for (let round = -1; round < plan.rounds; round++) {
  for (let i = 0; i < plan.servers.length; i++) {
    await life(plan.servers[(i + Math.max(round, 0)) % plan.servers.length], '', round >= 0)
    // A server's work for its next caller should not slow down another server.
    await pause(plan.pause)
  }
}
for (const server of plan.crowd > 0 ? plan.servers : []) {
  const began = performance.now()
  const ended = await Promise.allSettled(Array.from({ length: plan.crowd }, () => life(server, ', at once', true)))
  for (const one of ended) {
    if (one.status === 'rejected') report(server, `failed: ${one.reason}`.slice(0, 200), began)
  }
  report(server, 'all, at once', began)
  await pause(3000)
}
