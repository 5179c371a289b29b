import { memo, type MouseEvent } from "react";
import { StateBadge } from "../parts";
import { Age, Attention, SandboxMenu, SandboxName, type SandboxProps, Choose, Kind, LastCommand, sandboxLabel } from "./facts";
import { Meter } from "./meter";

// Below this score, the only reason is that the sandbox is idle, for which the tile gets no
// coloured edge.
const attentionThreshold = 1000;

function isOnTile(event: MouseEvent): boolean {
  return event.target instanceof Element && event.target.closest("a, button, input, label, [role='menuitem']") === null;
}

/** A sandbox as a tile. */
export const Tile = memo(function Tile(props: SandboxProps) {
  const { row, index, total, chosen, current, operator, onOpen } = props;
  return (
    <li
      className={`fleet-tile fleet-sandbox${row.attention >= attentionThreshold ? " fleet-needs" : ""}`}
      aria-label={sandboxLabel(row)}
      aria-posinset={index + 1}
      aria-setsize={total}
      data-index={index}
      data-chosen={chosen || undefined}
      tabIndex={current ? 0 : -1}
      onClick={(event) => isOnTile(event) && onOpen(row)}
    >
      <div className="fleet-tile-head">
        {operator && <Choose {...props} />}
        <SandboxName row={row} />
        <StateBadge state={row.state} />
        <SandboxMenu {...props} />
      </div>
      <Kind row={row} />
      <Meters id={row.id} />
      <LastCommand row={row} />
      <div className="fleet-tile-foot">
        <Attention row={row} />
        <Age row={row} />
      </div>
    </li>
  );
});

/** A sandbox as a row of the table. */
export const Line = memo(function Line(props: SandboxProps) {
  const { row, index, chosen, current, operator, onOpen } = props;
  return (
    <div
      role="row"
      className={`fleet-line fleet-sandbox${row.attention >= attentionThreshold ? " fleet-needs" : ""}`}
      aria-label={sandboxLabel(row)}
      // Row 1 is the header.
      aria-rowindex={index + 2}
      data-index={index}
      data-chosen={chosen || undefined}
      tabIndex={current ? 0 : -1}
      onClick={(event) => isOnTile(event) && onOpen(row)}
    >
      <span role="cell" className="fleet-c-name">
        {operator && <Choose {...props} />}
        <SandboxName row={row} />
      </span>
      <span role="cell">
        <StateBadge state={row.state} />
      </span>
      <span role="cell" className="fleet-c-needs">
        <Attention row={row} />
      </span>
      <span role="cell" className="fleet-c-kind">
        <Kind row={row} />
      </span>
      <span role="cell" className="fleet-c-meters">
        <Meters id={row.id} />
      </span>
      <span role="cell" className="fleet-c-command">
        <LastCommand row={row} />
      </span>
      <span role="cell" className="fleet-c-age">
        <Age row={row} />
      </span>
      <span role="cell">
        <SandboxMenu {...props} />
      </span>
    </div>
  );
});

/** The headers of the table's columns. */
export const columns = ["Name", "State", "Needs", "Kind", "Load", "Last command", "Age", "Actions"] as const;

function Meters({ id }: { id: string }) {
  return (
    <div className="fleet-meters">
      <Meter id={id} kind="cpu" />
      <Meter id={id} kind="memory" />
      <Meter id={id} kind="egress" />
    </div>
  );
}
