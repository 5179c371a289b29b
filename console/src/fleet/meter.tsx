import { memo, useEffect, useRef } from "react";
import { live } from "../live";
import type { MetricKind } from "../live/metrics";
import { bytes, cores } from "../parts/format";
import { largest, sparkPath } from "../parts/sparkline";

const width = 100;
const height = 22;

const kinds: Record<MetricKind, { label: string; floor: number; write: (n: number) => string }> = {
  // The scale is fixed: a line that is scaled to its own maximum would turn noise into peaks.
  cpu: { label: "CPU", floor: 1, write: cores },
  memory: { label: "Memory", floor: 64 * 2 ** 20, write: bytes },
  egress: { label: "Egress", floor: 16 * 1024, write: (n) => `${bytes(n)}/s` },
};

/**
 * One metric of a sandbox with its last minute. Changing values are written into the page directly,
 * because React's state is too slow for a thousand sandboxes.
 */
export const Meter = memo(function Meter({ id, kind }: { id: string; kind: MetricKind }) {
  const path = useRef<SVGPathElement>(null);
  const figure = useRef<HTMLSpanElement>(null);
  const { label } = kinds[kind];

  useEffect(() => {
    const draw = () => {
      const latest = live.metrics.latest(id);
      if (!path.current || !figure.current) return;
      if (!latest) {
        figure.current.textContent = "–";
        path.current.removeAttribute("d");
        return;
      }
      const points = live.metrics.points(id, kind);
      const { floor, write } = kinds[kind];
      const top = kind === "memory" && latest.memory_limit > 0 ? latest.memory_limit : Math.max(floor, largest(points));
      path.current.setAttribute("d", sparkPath(points, top, width, height, 60));
      figure.current.textContent = write(latest[kind]);
    };
    draw();
    return live.metrics.subscribe(id, draw);
  }, [id, kind]);

  return (
    <div className="fleet-meter">
      <span className="fleet-meter-label">{label}</span>
      <span className="fleet-meter-figure" ref={figure}>
        –
      </span>
      <svg className="p-spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
        <path ref={path} />
      </svg>
    </div>
  );
});
