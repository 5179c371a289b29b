import type { ReactNode } from "react";
import { Empty } from "../parts";
import { hasEnded, isLive, type Sandbox } from "./queries";

/** Shows its children while the sandbox runs or if anyway is set, and otherwise the reason. */
export function WhileRunning({ sandbox, what, anyway = false, children }: { sandbox: Sandbox; what: string; anyway?: boolean; children: ReactNode }) {
  if (isLive(sandbox) || anyway) return children;
  if (hasEnded(sandbox)) return <Empty title={`${what} of an ended sandbox are not available`}>Its actions are in the audit log.</Empty>;
  return <Empty title={`The sandbox is ${sandbox.state}`}>{sandbox.state === "paused" ? `Resume it to see its ${what.toLowerCase()}.` : "Please wait."}</Empty>;
}
