import { configure } from "@testing-library/react";

/**
 * How long a test waits for an event, in milliseconds. It is generous, because the machine may be
 * busy.
 */
export const eventTimeout = 120_000;

configure({ asyncUtilTimeout: eventTimeout });
