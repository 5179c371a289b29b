import { configure } from "@testing-library/react";

/** How long, in milliseconds, a test waits for what it expects, however busy the machine is. */
export const patience = 120_000;

configure({ asyncUtilTimeout: patience });
