import { useEffect, useRef, useState } from "react";

/**
 * The text of a field that the address follows. The address comes after the
 * keys: a field that showed it would put the caret at its end with each letter,
 * and take back what was typed since.
 */
export function useTyped(said: string, say: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(said);
  // What was said, and is not in the address yet.
  const ahead = useRef<string[]>([]);
  useEffect(() => {
    const at = ahead.current.indexOf(said);
    ahead.current = at < 0 ? [] : ahead.current.slice(at + 1);
    // Somebody else said it: a link, or the way back.
    if (at < 0) setText(said);
  }, [said]);
  const type = (typed: string) => {
    setText(typed);
    ahead.current.push(typed);
    say(typed);
  };
  return [text, type];
}
