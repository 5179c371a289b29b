import { Empty, Inert, Loading, Problem, Table } from "../../parts";
import { useSandbox } from "../queries";
import { type Binding, bindings } from "../policy/outline";
import { usePolicy } from "../policy/tab";

/** The secrets that a sandbox's policy sets on its requests, by name. */
export function SecretsTab() {
  const sandbox = useSandbox();
  const policy = usePolicy();
  if (policy.isPending) return <Loading />;
  if (!policy.data) return <Problem error={policy.error} retry={() => void policy.refetch()} />;
  const bound = read(policy.data.document);
  return (
    <>
      <p className="quiet">Values never enter the sandbox and are not shown here. The egress gateway sets them on requests. Inside the sandbox, each name has a placeholder.</p>
      {bound === undefined ? (
        <Empty title="The secrets cannot be listed">This page cannot read the form of the policy. The tab Policy has all of it.</Empty>
      ) : (
        <Table<Binding>
          label="Secrets" rows={bound} rowKey={(one) => `${one.name} ${one.host} ${one.how} ${one.paths.join()}`} rowLabel={(one) => one.name}
          empty={<Empty title="No secret is bound">Its policy names no secret.</Empty>}
          columns={[
            { id: "name", header: "Name", cell: (one) => <span className="mono"><Inert text={one.name} /></span> },
            { id: "host", header: "Host", cell: (one) => <span className="mono"><Inert text={one.host} /></span> },
            { id: "how", header: "Set as", cell: (one) => <Inert text={one.how} /> },
            { id: "paths", header: "Paths", cell: (one) => (one.paths.length > 0 ? <span className="mono"><Inert text={one.paths.join(" ")} /></span> : "all") },
          ]}
        />
      )}
      {(sandbox.env_names ?? []).length > 0 && (
        <section>
          <h2>Variables</h2>
          <p className="quiet">Names of the environment variables from its creation. Their values are visible inside.</p>
          <p className="mono">
            <Inert text={(sandbox.env_names ?? []).join("  ")} />
          </p>
        </section>
      )}
    </>
  );
}

function read(document: string): Binding[] | undefined {
  try {
    return bindings(document);
  } catch {
    return undefined;
  }
}
