import { Link } from "@tanstack/react-router";
import { memo } from "react";
import { Badge, Inert, Time } from "../parts";
import { summaryOf, toneOf, type Entry } from "./entry";
import type { RecordSearch } from "./filter";

/** One entry on one line. */
export const Line = memo(function Line({ entry, open, search }: { entry: Entry; open: boolean; search: RecordSearch }) {
  return (
    <li className="r-line" data-open={open || undefined} data-tone={toneOf(entry)}>
      <Link
        to="/record/$seq"
        params={{ seq: String(entry.seq) }}
        search={search}
        className="r-link"
        aria-current={open ? "true" : undefined}
        onKeyDown={(e) => {
          if (e.key !== "j" && e.key !== "k") return;
          const row = e.currentTarget.closest("li");
          const next = e.key === "j" ? row?.nextElementSibling : row?.previousElementSibling;
          next?.querySelector("a")?.focus();
        }}
      >
        <span className="r-seq mono">{entry.seq}</span>
        <span className="r-time">
          <Time at={entry.time} />
        </span>
        <span className="r-kind">
          <Badge tone={toneOf(entry)}>{entry.kind}</Badge>
        </span>
        <span className="r-what">
          <Inert text={summaryOf(entry).slice(0, 400)} />
        </span>
        <span className="r-who quiet">
          {entry.sandbox && <Inert text={entry.sandbox} />} {entry.actor && <Inert text={entry.actor} />}
        </span>
      </Link>
    </li>
  );
});
