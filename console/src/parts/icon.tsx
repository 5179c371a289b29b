// Each is drawn on a grid of 16 by 16, with lines of width 1.5.
const shapes = {
  alert: "M8 2 1.5 13.5h13zM8 6.5v3.2M8 11.6v.2",
  approvals: "M2.5 9.5 4 3h8l1.5 6.5v3.5h-11zM2.5 9.5h3l1 1.5h3l1-1.5h3",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM6.5 14.5h3",
  box: "M8 1.8 14 5v6l-6 3.2L2 11V5zM2 5l6 3 6-3M8 8v6",
  check: "m3 8.5 3.2 3.2L13 4.8",
  "chevron-down": "m4 6 4 4 4-4",
  "chevron-right": "m6 4 4 4-4 4",
  "chevron-up": "m4 10 4-4 4 4",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.2 1.6",
  close: "m4 4 8 8M12 4l-8 8",
  code: "m5.5 4.5-3.5 3.5 3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  deny: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM3.8 3.8l8.4 8.4",
  doctor: "M1.5 8h3l1.7-4.5 3.2 9L11.3 8h3.2",
  download: "M8 2v8M4.8 7 8 10.2 11.2 7M2.5 13.5h11",
  edit: "m10.5 2.8 2.7 2.7-7.5 7.5-3.4.7.7-3.4z",
  external: "M9 2.5h4.5V7M13.5 2.5 7.5 8.5M11.5 9.5v4h-9v-9h4",
  eye: "M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8zM8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z",
  file: "M4 1.8h5l3.2 3.2v9.2H4zM9 1.8V5h3.2",
  filter: "M2 3.5h12M4.5 8h7M6.5 12.5h3",
  fleet: "M2.5 2.5h4.3v4.3H2.5zM9.2 2.5h4.3v4.3H9.2zM2.5 9.2h4.3v4.3H2.5zM9.2 9.2h4.3v4.3H9.2z",
  folder: "M1.8 3.5h4.4l1.5 1.8h6.5v7.2H1.8z",
  fork: "M4.5 2.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3zM11.5 2.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3zM8 10.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3zM4.5 5.5v1.3L8 8.5l3.5-1.7V5.5M8 8.5v2",
  help: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM6.2 6.3a1.8 1.8 0 1 1 2.6 1.6c-.5.3-.8.6-.8 1.3M8 11.2v.2",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 7.3v3.9M8 4.9v.2",
  key: "M5.2 7.8a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM7.2 8.6l6-6M10.8 5l2 2",
  link: "M6.5 9.5 9.5 6.5M7.2 4.5l1.6-1.6a2.9 2.9 0 0 1 4.2 4.2l-1.6 1.6M8.8 11.5l-1.6 1.6A2.9 2.9 0 0 1 3 8.9l1.6-1.6",
  list: "M2 4h12M2 8h12M2 12h12",
  live: "M8 6.8a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4zM4.9 11.1a4.4 4.4 0 0 1 0-6.2M11.1 4.9a4.4 4.4 0 0 1 0 6.2M3 13A7 7 0 0 1 3 3M13 3a7 7 0 0 1 0 10",
  lock: "M3.5 7h9v6.5h-9zM5.5 7V5a2.5 2.5 0 0 1 5 0v2",
  logout: "M6.5 2.5h-4v11h4M6.5 8h7.5M11 5l3 3-3 3",
  monitor: "M1.8 3h12.4v8.2H1.8zM5.5 13.5h5",
  moon: "M13.5 9.3A5.8 5.8 0 0 1 6.7 2.5a5.8 5.8 0 1 0 6.8 6.8z",
  more: "M3.2 8h.1M8 8h.1M12.8 8h.1",
  network: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM2 8h12M8 2c2 1.8 2.8 3.8 2.8 6S10 12.2 8 14c-2-1.8-2.8-3.8-2.8-6S6 3.8 8 2z",
  package: "M2.5 5.5h11v8h-11zM2.5 5.5l1.8-3h7.4l1.8 3M8 2.5v3M6 8.5h4",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M4.5 2.8 13 8l-8.5 5.2z",
  plus: "M8 3v10M3 8h10",
  policy: "M8 1.8 13.2 4v4c0 3.2-2.2 5.3-5.2 6.3C5 13.3 2.8 11.2 2.8 8V4zM5.8 7.8l1.7 1.7 2.9-3",
  port: "M5.5 2v3.5M10.5 2v3.5M3.5 5.5h9V8a4.5 4.5 0 0 1-9 0zM8 12.5v2",
  process: "M4.5 4.5h7v7h-7zM6 2v2.5M10 2v2.5M6 11.5V14M10 11.5V14M2 6h2.5M2 10h2.5M11.5 6H14M11.5 10H14",
question:  "M5.8 5.5a2.3 2.3 0 1 1 3.4 2c-.8.5-1.2.9-1.2 1.8M8 12v.2",
  record: "M3.5 2h9v12l-2.2-1.3L8 14l-2.3-1.3L3.5 14zM5.8 5h4.4M5.8 8h4.4",
  refresh: "M13.5 8a5.5 5.5 0 1 1-1.8-4.1M13.5 2.5v3h-3",
  rollback: "M2.5 6.5h7.3a3.5 3.5 0 0 1 0 7H6M5.5 3.5l-3 3 3 3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14",
  secret: "M8 2v12M2.8 5l10.4 6M13.2 5 2.8 11",
  settings: "M2 4.5h7M12.5 4.5H14M2 11.5h1.5M7 11.5h7M10.7 2.8a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4zM5.3 9.8a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4z",
  snapshot: "M2 4.5h2.8L6 2.8h4l1.2 1.7H14v8.7H2zM8 6.3a2.4 2.4 0 1 0 0 4.8 2.4 2.4 0 0 0 0-4.8z",
  stop: "M3.8 3.8h8.4v8.4H3.8z",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M12.8 3.2l-1.1 1.1M4.3 11.7l-1.1 1.1",
  table: "M2 3h12v10H2zM2 6.4h12M2 9.7h12M6.2 6.4V13",
  template: "M2.5 2.5h11v3.3h-11zM2.5 8.3h4.8v5.2H2.5zM9.8 8.3h3.7v5.2H9.8z",
  terminal: "M1.8 2.8h12.4v10.4H1.8zM4.3 6l2.2 2-2.2 2M8.3 10.2h3.2",
  trash: "M2.5 4.5h11M6 4.5v-2h4v2M4 4.5l.7 9h6.6l.7-9M6.8 7v4M9.2 7v4",
  upload: "M8 10.5V2.5M4.8 5.5 8 2.3l3.2 3.2M2.5 13.5h11",
  user: "M8 2.5a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4zM2.8 14c.4-2.9 2.5-4.3 5.2-4.3s4.8 1.4 5.2 4.3",
};

export type IconName = keyof typeof shapes;

/** An icon beside a word; screen readers skip it. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg className="p-icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={shapes[name]} fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}
