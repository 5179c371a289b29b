/**
 * How much slower this machine is than the reference of the deadlines: see
 * internal/testkit/hosttest.
 */
export const slowness = Number(process.env["CRANNOG_TEST_SPEED"] ?? "1");
if (!(slowness >= 1 && Number.isInteger(slowness))) throw new Error(`CRANNOG_TEST_SPEED is ${process.env["CRANNOG_TEST_SPEED"]}`);

/** Whether the tests run that are too long for each change: make test-pages. */
export const full = (process.env["CRANNOG_TEST_FULL"] ?? "") !== "";
