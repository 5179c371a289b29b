/** Package parts owns the components that pages are built of. It does not depend on any page. */
import "./parts.css";
import "./page.css";
import "./table.css";

export { Badge, StateBadge, type Tone, Verdict } from "./badge";
export { Button, type ButtonProps, IconButton, Kbd } from "./button";
export { useNow } from "./clock";
export { Confirm, Dialog } from "./dialog";
export * as format from "./format";
export { Field, Select, Toggle } from "./form";
export { Icon, type IconName } from "./icon";
export { inert, inertLine, type InertText } from "./inert";
export { Menu, type MenuItem } from "./menu";
export { Can, Empty, Loading, Page, Problem, type Tab, TabBar } from "./page";
export { largest, Sparkline, sparkPath } from "./sparkline";
export { type Column, rowKeys, Table } from "./table";
export { toast, Toasts } from "./toast";
export { Bytes, Code, CopyText, Duration, Inert, Time } from "./values";
