/** The package cache, and what the gate answered. */
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useRef } from "react";
import { useShortcuts } from "../app/shortcuts";
import { Can, Empty, Page, TabBar } from "../parts";
import { Answers } from "./answerlist";
import { Cache } from "./cached";
import "./packages.css";
import { packageSearch, type PackageSearch } from "./search";

/** A change of the filter; an undefined field is removed. */
export type Change = { [K in keyof PackageSearch]?: PackageSearch[K] | undefined };

/** Packages: the content of the cache, and the answers of the gate. */
export function PackagesPage() {
  const search = packageSearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  const input = useRef<HTMLInputElement>(null);
  useShortcuts({ "/": { label: "Filter packages", run: () => input.current?.focus() } });
  const change = (to: Change) => void navigate({ to: "/packages", search: packageSearch({ ...search, ...to }), replace: true });
  const common = { search, change, input };
  return (
    <Page title="Packages">
      <TabBar
        current={search.view ?? "cache"}
        tabs={[
          { id: "cache", label: "Cache", to: "/packages" },
          { id: "answers", label: "Answers", to: "/packages?view=answers" },
        ]}
      />
      {search.view === "answers" ? (
        <Answers {...common} />
      ) : (
        <Can
          scope="admin"
          otherwise={
            <Empty title="The package cache is for admins">
              <p>It shows what the sandboxes of all users install. This session may not see or change it.</p>
              <p>
                The <Link to="/packages" search={{ view: "answers" }}>answers of the gate</Link> are in the audit log, which every session may read.
              </p>
            </Empty>
          }
        >
          <Cache {...common} />
        </Can>
      )}
    </Page>
  );
}
