/** A new sandbox, and cells of code in it. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { Button, Can, Empty, Loading, Page, Problem } from "../parts";
import "./create.css";
import { CreateForm } from "./createform";
import { Runner } from "./runner";
import { readSearch } from "./search";

export function NewPage() {
  const search = readSearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  const queries = useQueryClient();
  const made = useQuery({
    queryKey: ["new", search.sandbox],
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{id}", { params: { path: { id: search.sandbox ?? "" } } })),
    enabled: search.sandbox !== undefined,
    // The sandbox may end while its page is open.
    refetchInterval: 5000,
  });
  const again = (
    <Button icon="plus" onClick={() => void navigate({ to: "/new" })}>
      New sandbox
    </Button>
  );
  return (
    <Page title={search.sandbox ? "Run code" : "New sandbox"} actions={search.sandbox && again}>
      <Can scope="operator" otherwise={<Empty title="This session is read-only">An operator or an admin creates sandboxes.</Empty>}>
        {search.sandbox === undefined ? (
          <CreateForm
            template={search.template}
            onCreated={(sandbox) => {
              queries.setQueryData(["new", sandbox.id], sandbox);
              void navigate({ to: "/new", search: { sandbox: sandbox.id } });
            }}
          />
        ) : made.data ? (
          <Runner key={made.data.id} sandbox={made.data} error={made.error} />
        ) : made.error ? (
          <Problem error={made.error} retry={() => void made.refetch()} />
        ) : (
          <Loading />
        )}
      </Can>
    </Page>
  );
}
