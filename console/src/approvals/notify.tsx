import { useNotify } from "../app/notify";
import { Toggle } from "../parts";

/** A switch for desktop notifications, if the browser has them and permits them. */
export function Notify() {
  const [state, turn] = useNotify();
  if (state === "impossible") return null;
  if (state === "refused") return <span className="quiet">The browser refuses desktop notifications</span>;
  return <Toggle label="Desktop notifications" on={state === "on"} onChange={turn} />;
}
