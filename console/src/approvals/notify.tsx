import { useNotify } from "../app/notify";
import { Toggle } from "../parts";

/** Turns desktop notifications on and off, if the browser has them and permits it. */
export function Notify() {
  const [state, turn] = useNotify();
  if (state === "impossible") return null;
  if (state === "refused") return <span className="quiet">The browser refuses desktop notifications</span>;
  return <Toggle label="Desktop notifications" on={state === "on"} onChange={turn} />;
}
