import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { call } from "../../api/client";
import { asProblem } from "../../api/problem";
import { Button, Can, toast } from "../../parts";
import { inside, useRefresh, useSandbox } from "../queries";
import type { TerminalInfo } from "./attached";

/** Starts a shell on a terminal, and opens it. */
export function OpenTerminal() {
  const sandbox = useSandbox();
  const navigate = useNavigate();
  const refresh = useRefresh();
  const [busy, setBusy] = useState(false);
  const open = async () => {
    setBusy(true);
    try {
      const terminal = await call<TerminalInfo>("POST", inside(sandbox.id, "terminals"), { cols: 100, rows: 30 });
      await refresh("terminals");
      void navigate({ to: "/s/$id/$tab", params: { id: sandbox.id, tab: "terminal" }, search: { terminal: terminal.pid } });
    } catch (thrown) {
      toast(asProblem(thrown).text, { tone: "bad" });
    } finally {
      setBusy(false);
    }
  };
  return (
    <Can scope="operator">
      <Button variant="primary" icon="plus" busy={busy} onClick={() => void open()}>
        Open terminal
      </Button>
    </Can>
  );
}
