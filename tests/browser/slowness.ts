/**
 * How much slower this machine is than the reference machine of the deadlines: see
 * internal/testkit/hosttest.
 */
export const slowness = Number(process.env["CRANNOG_TEST_SPEED"] ?? "1");
if (!(slowness >= 1 && Number.isInteger(slowness))) throw new Error(`CRANNOG_TEST_SPEED is ${process.env["CRANNOG_TEST_SPEED"]}, want a positive integer`);

/** Whether to run tests that are too long for each change, as make test-pages does. */
export const full = (process.env["CRANNOG_TEST_FULL"] ?? "") !== "";
