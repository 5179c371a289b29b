import { useEffect, useRef, useState } from "react";

/**
 * The text of a field that is also in the address. The address changes after the keys: a field that
 * showed it would move the caret to its end with each letter, and lose what was typed since.
 */
export function useTyped(said: string, say: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(said);
  // The value that was reported, and is not in the address yet.
  const ahead = useRef<string[]>([]);
  useEffect(() => {
    const at = ahead.current.indexOf(said);
    ahead.current = at < 0 ? [] : ahead.current.slice(at + 1);
    // Something else changed the address: a link, or the back button.
    if (at < 0) setText(said);
  }, [said]);
  const type = (typed: string) => {
    setText(typed);
    ahead.current.push(typed);
    say(typed);
  };
  return [text, type];
}
