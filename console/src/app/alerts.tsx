import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import type { Approval } from "../api/console";
import { live, useApprovals } from "../live";
import { inertLine } from "../parts/inert";
import { canNotify, notify } from "./notify";
import { badge } from "./favicon";

/**
 * Announces new approval requests: to screen readers, on the tab's icon and, while the page is not
 * visible, as desktop notifications.
 */
export function ApprovalAlerts() {
  const pending = useApprovals().pending.length;
  const navigate = useNavigate();
  const [announced, setAnnounced] = useState<{ id: string; text: string } | null>(null);

  useEffect(() => badge(pending), [pending]);

  useEffect(() => {
    const announce = (approval: Approval) => {
      const summary = inertLine(approval.summary).text;
      setAnnounced({ id: approval.id, text: `A sandbox requests approval: ${summary}` });
      const notification = canNotify() ? notify("A sandbox requests approval", { body: summary, tag: approval.id, icon: badgeIcon }) : null;
      if (!notification) return;
      notification.onclick = () => {
        window.focus();
        notification.close();
        void navigate({ to: "/approvals/$id", params: { id: approval.id } });
      };
    };
    return live.onRequest.on(announce);
  }, [navigate]);

  useEffect(() => {
    const update = () => {
      live.setHidden(document.hidden);
      if (!document.hidden) live.reconnectNow();
    };
    // A page may be opened in a background tab.
    live.setHidden(document.hidden);
    window.addEventListener("online", update);
    document.addEventListener("visibilitychange", update);
    return () => {
      window.removeEventListener("online", update);
      document.removeEventListener("visibilitychange", update);
    };
  }, []);

  return (
    <div className="unseen" role="alert" aria-label="New approvals">
      {announced && <span key={announced.id}>{announced.text}</span>}
    </div>
  );
}

const badgeIcon = new URL("./icon.svg", import.meta.url).href;
