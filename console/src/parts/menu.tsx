import { DropdownMenu as Radix } from "radix-ui";
import type { ReactNode } from "react";
import { IconButton } from "./button";
import type { IconName } from "./icon";

export interface MenuItem {
  label: string;
  onSelect: () => void;
  danger?: boolean;
  disabled?: boolean;
}

export interface MenuProps {
  label: string;
  items: MenuItem[];
  icon?: IconName;
  /** A button to use instead of the three dots. */
  trigger?: ReactNode;
  /** Content above the items that is not an item. */
  head?: ReactNode;
}

export function Menu({ label, items, icon = "more", trigger, head }: MenuProps) {
  return (
    <Radix.Root modal={false}>
      <Radix.Trigger asChild>{trigger ?? <IconButton icon={icon} label={label} />}</Radix.Trigger>
      <Radix.Portal container={document.getElementById("main")}>
        <Radix.Content className="p-menu" align="end" sideOffset={4} collisionPadding={8}>
          {head && <div className="p-menu-head">{head}</div>}
          {items.map((item) => (
            <Radix.Item
              key={item.label}
              className={item.danger ? "p-menu-item p-menu-danger" : "p-menu-item"}
              disabled={item.disabled ?? false}
              onSelect={item.onSelect}
            >
              {item.label}
            </Radix.Item>
          ))}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
