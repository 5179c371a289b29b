/** Returns the SVG path of the points; the last one is at the right edge. NaN makes a gap. */
export function sparkPath(points: ArrayLike<number>, max: number, width: number, height: number, room = points.length): string {
  const n = points.length;
  if (n === 0) return "";
  const top = max > 0 ? max : 1;
  const step = room > 1 ? width / (room - 1) : width;
  let path = "";
  let command = "M";
  for (let i = 0; i < n; i++) {
    const point = points[i] ?? 0;
    if (Number.isNaN(point)) {
      command = "M";
      continue;
    }
    const value = Math.min(Math.max(point, 0), top);
    const x = width - (n - 1 - i) * step;
    const y = height - 1 - (value / top) * (height - 2);
    path += `${command}${x.toFixed(1)} ${y.toFixed(1)}`;
    command = "L";
  }
  return path;
}

/** Returns the largest point. */
export function largest(points: ArrayLike<number>): number {
  let max = 0;
  for (let i = 0; i < points.length; i++) max = Math.max(max, points[i] || 0);
  return max;
}

export interface SparklineProps {
  points: number[];
  /** The value at the upper edge; the largest point if absent. */
  max?: number;
  label: string;
}

/** A small line chart without axes. */
export function Sparkline({ points, max, label }: SparklineProps) {
  return (
    <svg className="p-spark" viewBox="0 0 120 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={sparkPath(points, max ?? largest(points), 120, 24, 60)} />
    </svg>
  );
}
