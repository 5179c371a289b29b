// Removes every sandbox of the server that the environment names, and exits with 1 if there was
// one. Sandboxes outlive their server, so none may be left when run.sh deletes the state directory.
const call = (method, path) =>
  fetch(new URL(path, process.env.E2B_API_URL), { method, headers: { 'X-API-KEY': process.env.E2B_API_KEY } })

// The list of the second API generation includes paused sandboxes.
const left = []
for (let token = ''; ; ) {
  const response = await call('GET', `/v2/sandboxes?nextToken=${encodeURIComponent(token)}`)
  if (!response.ok) throw new Error(`list sandboxes: ${response.status} ${await response.text()}`)
  left.push(...(await response.json()).map((s) => s.sandboxID))
  token = response.headers.get('x-next-token')
  if (!token) break
}
for (const id of left) {
  console.error(`sandbox ${id} is left`)
  const removed = await call('DELETE', `/sandboxes/${id}`)
  if (!removed.ok && removed.status !== 404) throw new Error(`remove ${id}: ${removed.status} ${await removed.text()}`)
}
process.exit(left.length > 0 ? 1 : 0)
