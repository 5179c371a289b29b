/** The icon of the tab, with the number of pending approval requests. */
export function faviconSVG(count: number): string {
  const text = count > 99 ? "99" : String(count);
  const hut =
    '<rect width="32" height="32" rx="7" fill="#0b6670"/><path d="M6 15.5 16 7l10 8.5M9 15.5v3.5h14v-3.5M11.5 19v6.5M16 19v6.5M20.5 19v6.5" fill="none" stroke="#fff" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round"/>';
  const mark =
    count > 0
      ? `<circle cx="22" cy="10" r="10" fill="#c62a20"/><text x="22" y="15" font-family="sans-serif" font-size="${text.length > 1 ? 12 : 15}" font-weight="700" fill="#fff" text-anchor="middle">${text}</text>`
      : "";
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${hut}${mark}</svg>`;
}

let plainIcon: string | undefined;

/** Shows on the tab how many requests are pending. */
export function badge(count: number) {
  const link = document.querySelector<HTMLLinkElement>("link[rel='icon']");
  if (!link) return;
  plainIcon ??= link.href;
  link.href = count > 0 ? `data:image/svg+xml,${encodeURIComponent(faviconSVG(count))}` : plainIcon;
}
