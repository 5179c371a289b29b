import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import type { Approval } from "../api/console";
import { live, useApprovals } from "../live";
import { inertLine } from "../parts/inert";
import { canNotify, notify } from "./notify";
import { badge } from "./favicon";

/** Notifies the user, while the page is not visible, of a request that waits for a decision. */
export function Watchman() {
  const pending = useApprovals().pending.length;
  const navigate = useNavigate();
  const [said, setSaid] = useState<{ id: string; text: string } | null>(null);

  useEffect(() => badge(pending), [pending]);

  useEffect(() => {
    const tell = (approval: Approval) => {
      const summary = inertLine(approval.summary).text;
      setSaid({ id: approval.id, text: `A sandbox asks: ${summary}` });
      const note = canNotify() ? notify("A sandbox asks for approval", { body: summary, tag: approval.id, icon: badgeIcon }) : null;
      if (!note) return;
      note.onclick = () => {
        window.focus();
        note.close();
        void navigate({ to: "/approvals/$id", params: { id: approval.id } });
      };
    };
    return live.onQuestion.on(tell);
  }, [navigate]);

  useEffect(() => {
    const hurry = () => {
      live.setHidden(document.hidden);
      if (!document.hidden) live.hurry();
    };
    // A page can be opened in the background.
    live.setHidden(document.hidden);
    window.addEventListener("online", hurry);
    document.addEventListener("visibilitychange", hurry);
    return () => {
      window.removeEventListener("online", hurry);
      document.removeEventListener("visibilitychange", hurry);
    };
  }, []);

  return (
    <div className="unseen" role="alert" aria-label="New approvals">
      {said && <span key={said.id}>{said.text}</span>}
    </div>
  );
}

const badgeIcon = new URL("./icon.svg", import.meta.url).href;
