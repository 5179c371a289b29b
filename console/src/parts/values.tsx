import { useEffect, useState } from "react";
import { useNow } from "./clock";
import { bytes, duration, localTime, relative, utc } from "./format";
import { Icon } from "./icon";
import { type InertText, inert, inertLine } from "./inert";

/** A time in the reader's time zone, with UTC on hover. */
export function Time({ at, relative: isRelative }: { at: string; relative?: boolean }) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return <span className="quiet">–</span>;
  return (
    <time dateTime={at} title={isRelative ? `${localTime(date)} · ${utc(date)}` : utc(date)}>
      {isRelative ? <RelativeTime at={date.getTime()} /> : localTime(date)}
    </time>
  );
}

function RelativeTime({ at }: { at: number }) {
  // A time after the last tick of the clock must not be shown as in the future.
  return relative(at, Math.max(useNow(10_000), Date.now()));
}

export function Duration({ ms }: { ms: number }) {
  return <span>{duration(ms)}</span>;
}

/** A size, with the exact number on hover. */
export function Bytes({ n }: { n: number }) {
  return <span title={`${n} bytes`}>{bytes(n)}</span>;
}

/** A value with a button that copies it. */
export function CopyText({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = () => {
    navigator.clipboard?.writeText(text).then(
      () => setDone(true),
      () => setDone(false),
    );
  };
  return (
    <span className="p-copy">
      <code>
        <Inert text={label ?? text} />
      </code>
      <button type="button" className="p-icon-button" aria-label={done ? "Copied" : "Copy"} title={done ? "Copied" : "Copy"} onClick={copy}>
        <Icon name={done ? "check" : "copy"} size={14} />
      </button>
    </span>
  );
}

/**
 * Text that a sandbox chose. Deceptive characters are removed, with a mark that says so, and the
 * text cannot change the reading order of the words beside it.
 */
export function Inert({ text, block = false }: { text: string; block?: boolean }) {
  const clean = block ? inert(text) : inertLine(text);
  return block ? (
    <pre className="p-inert-block">
      <Cleaned clean={clean} />
      <bdi>{clean.text}</bdi>
    </pre>
  ) : (
    <span className="p-inert">
      <Cleaned clean={clean} />
      <bdi>{clean.text}</bdi>
    </span>
  );
}

// The mark is before the text: after a long text it would not be visible.
function Cleaned({ clean }: { clean: InertText }) {
  if (!clean.changed) return null;
  return (
    <span className="p-cleaned" role="img" aria-label="cleaned" title="Control or invisible characters were removed from this text.">
      <Icon name="alert" size={12} />
    </span>
  );
}

/** Source or output on separate lines. */
export function Code({ text, language }: { text: string; language?: string }) {
  const clean = inert(text);
  return (
    <pre className="p-code" data-language={language} tabIndex={0}>
      <Cleaned clean={clean} />
      <code>{clean.text}</code>
    </pre>
  );
}
