import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { call } from "../api/client";
import { Button, Can, CopyText, Empty, Inert, Loading, Page, Problem, Table, type Column } from "../parts";
import "./admin.css";

interface Template {
  id: string;
  name: string;
}

/** The templates that sandboxes can start from. */
export function TemplatesPage() {
  const navigate = useNavigate();
  const templates = useQuery({ queryKey: ["templates"], queryFn: async () => (await call<{ templates: Template[] | null }>("GET", "/templates")).templates ?? [] });
  const columns: Column<Template>[] = [
    { id: "name", header: "Name", cell: (t) => <Inert text={t.name} /> },
    { id: "id", header: "ID", cell: (t) => <CopyText text={t.id} /> },
    {
      id: "do",
      header: "",
      align: "end",
      cell: (t) => (
        <Can scope="operator">
          <Button onClick={() => void navigate({ to: "/new", search: { template: t.name || t.id } })}>New sandbox</Button>
        </Can>
      ),
    },
  ];
  return (
    <Page title="Templates">
      <p className="quiet">These templates show the programs of this host and no other files of it. A snapshot is a template too.</p>
      {templates.error && <Problem error={templates.error} retry={() => void templates.refetch()} />}
      {templates.isPending && <Loading />}
      {templates.data && (
        <div className="p-stack">
          <Table label="Templates" columns={columns} rows={templates.data} rowKey={(t) => t.id} rowLabel={(t) => t.name || t.id} empty={<Empty title="No templates" />} />
        </div>
      )}
    </Page>
  );
}
