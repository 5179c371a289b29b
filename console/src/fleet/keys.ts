/** Returns the tile that a key moves to in a grid with the given columns; null if none. */
export function nextIndex(key: string, at: number, count: number, across: number): number | null {
  const last = count - 1;
  let to: number;
  switch (key) {
    case "j":
      to = at + 1;
      break;
    case "k":
      to = at - 1;
      break;
    case "ArrowRight":
      to = across > 1 ? at + 1 : at;
      break;
    case "ArrowLeft":
      to = across > 1 ? at - 1 : at;
      break;
    case "ArrowDown":
      // The last row may have no tile below this one; then the last tile is used.
      to = at + across > last && Math.floor(at / across) < Math.floor(last / across) ? last : at + across;
      break;
    case "ArrowUp":
      to = at - across;
      break;
    case "Home":
      to = 0;
      break;
    case "End":
      to = last;
      break;
    case "PageDown":
      to = Math.min(last, at + across * 5);
      break;
    case "PageUp":
      to = Math.max(0, at - across * 5);
      break;
    default:
      return null;
  }
  return to < 0 || to > last || to === at ? null : to;
}
