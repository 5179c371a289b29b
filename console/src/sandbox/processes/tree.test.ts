import { expect, it } from "vitest";
import { nested, ordered } from "./tree";

const processes = [
  { pid: 9, ppid: 1, cpu: 0.1, memory: 5 },
  { pid: 1, cpu: 0 },
  { pid: 12, ppid: 9, cpu: 0.9, memory: 50 },
  { pid: 7, ppid: 99 },
];

it("puts processes below their parents", () => {
  expect(nested(processes).map((p) => [p.process.pid, p.level])).toEqual([[1, 0], [9, 1], [12, 2], [7, 0]]);
});

it("shows each process once, whatever parents the sandbox reports", () => {
  expect(nested([{ pid: 1, ppid: 2 }, { pid: 2, ppid: 1 }, { pid: 3, ppid: 3 }]).map((p) => p.process.pid).sort()).toEqual([1, 2, 3]);
});

it("sorts by the chosen column", () => {
  expect(ordered(processes, "cpu").map((p) => p.process.pid)).toEqual([12, 9, 1, 7]);
  expect(ordered(processes, "memory").map((p) => p.process.pid)).toEqual([12, 9, 1, 7]);
  expect(ordered(processes, "pid").map((p) => p.process.pid)).toEqual([1, 7, 9, 12]);
});
