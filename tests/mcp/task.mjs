// A task for a scripted agent: a repository with a failing test. Each step is a call that a model
// would make, with a pattern that the result must match.
import assert from 'node:assert/strict'

export const broken = 'def total(prices):\n    """The sum of all prices."""\n    return sum(prices[1:])\n'
export const corrected = broken.replace('prices[1:]', 'prices')

export const files = {
  'calc.py': broken,
  'test_calc.py': 'import unittest\nfrom calc import total\n\nclass Total(unittest.TestCase):\n    def test_all(self):\n        self.assertEqual(total([1, 2, 3]), 6)\n',
}

const test = { command: 'python3 -B -m unittest -q' }

export const steps = [
  { tool: 'list_files', input: {}, matches: /calc\.py[\s\S]*test_calc\.py/ },
  { tool: 'bash', input: test, matches: /FAILED[\s\S]*exit code 1/ },
  { tool: 'search_files', input: { pattern: 'def total' }, matches: /calc\.py/ },
  { tool: 'read_file', input: { path: 'calc.py' }, matches: /sum\(prices\[1:\]\)/ },
  { tool: 'edit_file', input: { path: 'calc.py', edits: [{ old: 'prices[1:]', new: 'prices' }] }, matches: /\+ +return sum\(prices\)/ },
  { tool: 'bash', input: test, matches: /OK/ },
]

export const conclusion = 'The first price was left out. The tests pass.'

// Script checks the last result and returns the next step.
export class Script {
  #next = 0

  get done() { return this.#next === steps.length }

  // next takes the text of the last result, and returns a step, or undefined at the end.
  next(answer) {
    if (this.#next > 0) assert.match(answer, steps[this.#next - 1].matches, `after ${JSON.stringify(steps[this.#next - 1].input)}`)
    if (this.done) return undefined
    return steps[this.#next++]
  }
}
