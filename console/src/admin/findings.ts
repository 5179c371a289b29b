// The findings of doctor: their order and their summary.

export interface Finding {
  check: string;
  result: "ok" | "warn" | "fail";
  detail: string;
  fix?: string;
}

const rank = { fail: 0, warn: 1, ok: 2 } as const;

/** bySeverity sorts failures first; an unknown result counts as a failure. */
export function bySeverity(findings: readonly Finding[]): Finding[] {
  return findings
    .map((f) => (f.result in rank ? f : { ...f, result: "fail" as const }))
    .toSorted((a, b) => rank[a.result] - rank[b.result]);
}

/** headline summarizes the findings in one line. */
export function headline(findings: readonly Finding[]): string {
  const count = (r: Finding["result"]) => findings.filter((f) => f.result === r).length;
  const [fail, warn] = [count("fail"), count("warn")];
  if (fail > 0) return `${fail} ${fail === 1 ? "check fails" : "checks fail"}: sandboxes may not run.`;
  if (warn > 0) return `${warn} ${warn === 1 ? "check has a warning" : "checks have a warning"}.`;
  return "All checks pass.";
}

/**
 * fixOf returns a fix with its command, which can be copied, or without one if it is a sentence.
 */
export function fixOf(text: string): { command?: string; text: string } {
  const isCommand = /^(sudo|apt|apt-get|dnf|yum|apk|crannog|sysctl|modprobe|systemctl|export|mount|echo|mkdir|chmod|chown|usermod|loginctl)\s/.test(text);
  return isCommand ? { command: text, text } : { text };
}
