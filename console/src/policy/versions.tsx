import { Link } from "@tanstack/react-router";
import { Inert, Time } from "../parts";
import type { Version } from "./read";

/** The policies that a sandbox has had, each with its audit entry. */
export function Versions({ versions }: { versions: readonly Version[] }) {
  return (
    <section className="y-panel" aria-labelledby="y-versions">
      <h2 id="y-versions">Versions</h2>
      <ol className="y-versions">
        {versions.map((v, i) => (
          <li key={v.seq}>
            <Link to="/record/$seq" params={{ seq: String(v.seq) }}>
              entry {v.seq}
            </Link>{" "}
            {i === 0 && <strong>in force</strong>} <Time at={v.at} relative />
            <span className="quiet">
              {" "}
              by <Inert text={v.actor} />
            </span>
            <div className="mono quiet y-digest">{v.digest}</div>
          </li>
        ))}
      </ol>
    </section>
  );
}
