import { useEffect, useRef, useState } from "react";

/**
 * The text of a field that is also in the URL. The URL changes some time after the keys: a field
 * that showed it would move the caret to its end with each letter, and lose what was typed since.
 */
export function useTyped(urlValue: string, setURL: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(urlValue);
  // The values that were reported and are not in the URL yet.
  const pending = useRef<string[]>([]);
  useEffect(() => {
    const at = pending.current.indexOf(urlValue);
    pending.current = at < 0 ? [] : pending.current.slice(at + 1);
    // Something else changed the URL: a link, or the back button.
    if (at < 0) setText(urlValue);
  }, [urlValue]);
  const type = (typed: string) => {
    setText(typed);
    pending.current.push(typed);
    setURL(typed);
  };
  return [text, type];
}
