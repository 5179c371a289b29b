/** The logo of Crannog: a hut on piles above the water. */
export function Mark({ size = 20 }: { size?: number }) {
  return (
    <svg className="app-mark" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path
        d="M3.5 11.5 12 4l8.5 7.5M6 11.5h12M6.8 11.5v3h10.4v-3M8.5 14.5V20M12 14.5V20M15.5 14.5V20"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.8"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
      <path
        d="M2.5 18.2c1.6 0 1.6 1 3.2 1s1.6-1 3.2-1 1.6 1 3.1 1 1.6-1 3.2-1 1.6 1 3.2 1 1.6-1 3.1-1"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        strokeLinecap="round"
        opacity="0.65"
      />
    </svg>
  );
}
