import { useState } from "react";
import { Empty, Loading, Problem } from "../../parts";
import { useInside } from "../queries";
import { Attached, type TerminalInfo } from "./attached";
import { OpenTerminal } from "./open";

/** The newest terminal, beside the timeline, as long as it exists. */
export function Beside() {
  const list = useInside<{ terminals: TerminalInfo[] | null }>("terminals", { every: 5000 });
  const open = [...(list.data?.terminals ?? [])].sort((a, b) => Date.parse(b.started_at) - Date.parse(a.started_at));
  const [first, setFirst] = useState<number>();
  // A new terminal of a program does not replace the one in use.
  const newest = open.find((one) => one.pid === first) ?? open[0];
  if (newest && newest.pid !== first) setFirst(newest.pid);
  return (
    <aside className="sb-column sb-beside" aria-label="Terminal">
      {list.isPending ? (
        <Loading />
      ) : list.error && !list.data ? (
        <Problem error={list.error} retry={() => void list.refetch()} />
      ) : newest ? (
        <Attached key={newest.pid} pid={newest.pid} viewers={newest.viewers} small />
      ) : (
        <Empty title="No terminal is open">
          <OpenTerminal />
        </Empty>
      )}
    </aside>
  );
}
