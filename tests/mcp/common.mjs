// Functions that the tests share: they start the program under test and create directories.
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync, mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const here = dirname(fileURLToPath(import.meta.url))

function need(name) {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set: start the tests with run.sh`)
  return value
}

// crannog is the path of the program; url and key are those of the server that run.sh started.
export const crannog = need('CRANNOG')
export const url = need('CRANNOG_TEST_URL')
export const key = need('CRANNOG_TEST_KEY')

// run runs a program to its end, and does not throw for an exit code. With options.hold the
// program's input does not end.
export function run(file, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = execFile(file, args, { timeout: 900_000 * Number(process.env.CRANNOG_TEST_SPEED ?? 1), maxBuffer: 64 << 20, ...options }, (error, stdout, stderr) => {
      if (error && typeof error.code !== 'number') return reject(new Error(`${file} ${args.join(' ')}: ${error}\n${stdout}${stderr}`))
      resolve({ code: error ? error.code : 0, stdout, stderr })
    })
    // A program that has ended did not read its input.
    child.stdin.on('error', (error) => { if (error.code !== 'EPIPE') reject(error) })
    if (!options.hold) child.stdin.end(options.input ?? '')
  })
}

// inspect runs npm's inspector in its command line mode and returns its output as JSON. The
// inspector passes few variables to the program that it starts, so the state directory is passed
// explicitly. Without it, the program would use and upgrade the state of the machine.
export async function inspect(flags, target, options = {}) {
  const state = target[0] === '--' ? ['-e', `CRANNOG_STATE=${need('CRANNOG_STATE')}`] : []
  const args = ['--cli', ...flags, ...state, ...target]
  const { code, stdout, stderr } = await run(join(here, 'node_modules/.bin/mcp-inspector'), args, options)
  // The inspector exits with 5 if a tool reports a failure.
  if (code !== 0 && code !== 5) throw new Error(`inspector ${args.join(' ')}: exit code ${code}\n${stdout}${stderr}`)
  return JSON.parse(stdout.slice(stdout.indexOf('{')))
}

// project creates a directory with files, which is removed after the test.
export function project(t, files) {
  const dir = mkdtempSync(join(tmpdir(), 'crannog-mcp-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(dir, name)), { recursive: true })
    writeFileSync(join(dir, name), text)
  }
  return dir
}

// sandboxes lists the running sandboxes, to check that none is left.
export async function sandboxes() {
  const { stdout } = await run(crannog, ['ls', '-q'])
  return stdout.split('\n').filter(Boolean)
}
