import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { fleetSearch } from "../fleet/search";
import { Loading } from "../parts/page";
import { Failed, NotFound } from "./failed";
import { readSearch as newSearch } from "../create/search";
import { packageSearch } from "../packages/search";
import { readSearch as policySearch } from "../policy/search";
import { readSearch as recordSearch } from "../record/search";
import { sandboxSearch } from "../sandbox/search";
import { Root } from "./root";

const root = createRootRoute({ component: Root, notFoundComponent: NotFound, errorComponent: Failed });

// Each page is loaded when it is first opened. Its filters are in the search part of the URL, so
// that the address restores the page completely.
const routes = [
  createRoute({
    getParentRoute: () => root,
    path: "/",
    validateSearch: fleetSearch,
    component: lazyRouteComponent(() => import("../fleet/page"), "FleetPage"),
  }),
  createRoute({ getParentRoute: () => root, path: "/approvals", component: lazyRouteComponent(() => import("../approvals/page"), "ApprovalsPage") }),
  createRoute({ getParentRoute: () => root, path: "/approvals/$id", component: lazyRouteComponent(() => import("../approvals/page"), "ApprovalsPage") }),
  createRoute({ getParentRoute: () => root, path: "/record", validateSearch: recordSearch, component: lazyRouteComponent(() => import("../record/page"), "RecordPage") }),
  createRoute({ getParentRoute: () => root, path: "/record/$seq", validateSearch: recordSearch, component: lazyRouteComponent(() => import("../record/page"), "RecordPage") }),
  createRoute({ getParentRoute: () => root, path: "/policy", validateSearch: policySearch, component: lazyRouteComponent(() => import("../policy/page"), "PolicyPage") }),
  createRoute({ getParentRoute: () => root, path: "/new", validateSearch: newSearch, component: lazyRouteComponent(() => import("../create/page"), "NewPage") }),
  createRoute({ getParentRoute: () => root, path: "/s/$id", validateSearch: sandboxSearch, component: lazyRouteComponent(() => import("../sandbox/page"), "SandboxPage") }),
  createRoute({ getParentRoute: () => root, path: "/s/$id/$tab", validateSearch: sandboxSearch, component: lazyRouteComponent(() => import("../sandbox/page"), "SandboxPage") }),
  createRoute({ getParentRoute: () => root, path: "/keys", component: lazyRouteComponent(() => import("../admin/keys"), "KeysPage") }),
  createRoute({ getParentRoute: () => root, path: "/secrets", component: lazyRouteComponent(() => import("../admin/secrets"), "SecretsPage") }),
  createRoute({ getParentRoute: () => root, path: "/templates", component: lazyRouteComponent(() => import("../admin/templates"), "TemplatesPage") }),
  createRoute({ getParentRoute: () => root, path: "/snapshots", component: lazyRouteComponent(() => import("../admin/snapshots"), "SnapshotsPage") }),
  createRoute({ getParentRoute: () => root, path: "/packages", validateSearch: packageSearch, component: lazyRouteComponent(() => import("../packages/page"), "PackagesPage") }),
  createRoute({ getParentRoute: () => root, path: "/settings", component: lazyRouteComponent(() => import("../admin/settings"), "SettingsPage") }),
  createRoute({ getParentRoute: () => root, path: "/doctor", component: lazyRouteComponent(() => import("../admin/doctor"), "DoctorPage") }),
];

/** The routes of the console. */
export const router = createRouter({
  routeTree: root.addChildren(routes),
  basepath: "/console",
  defaultPreload: "intent",
  defaultPreloadStaleTime: 0,
  defaultPendingComponent: Loading,
  defaultErrorComponent: Failed,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
