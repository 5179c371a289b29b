import { configure } from "@testing-library/react";

/**
 * How long, in milliseconds, a test waits for an event. It is generous, because the machine may be
 * busy.
 */
export const eventTimeout = 120_000;

configure({ asyncUtilTimeout: eventTimeout });
