import { useQuery } from "@tanstack/react-query";
import { call } from "../api/client";
import { Badge, Button, CopyText, Empty, Inert, Loading, Page, Problem, Time } from "../parts";
import "./admin.css";
import { bySeverity, fixOf, headline, type Finding } from "./findings";

const tones = { ok: "ok", warn: "warn", fail: "bad" } as const;
const icons = { ok: "check", warn: "info", fail: "alert" } as const;

/** The checks of this machine, as crannog doctor makes them. */
export function DoctorPage() {
  const doctor = useQuery({ queryKey: ["doctor"], queryFn: () => call<{ at: string; findings: Finding[] | null }>("GET", "/doctor") });
  const findings = bySeverity(doctor.data?.findings ?? []);
  return (
    <Page
      title="Doctor"
      actions={
        <Button icon="refresh" busy={doctor.isFetching} onClick={() => void doctor.refetch()}>
          Check again
        </Button>
      }
    >
      {doctor.error && <Problem error={doctor.error} />}
      {doctor.isPending && <Loading what="Checking this machine" />}
      {doctor.data && (
        <>
          <p role="status">
            {headline(findings)} <span className="quiet">Checked <Time at={doctor.data.at} relative />.</span>
          </p>
          {findings.length === 0 && <Empty title="No check was made" />}
          <ul className="d-find" aria-label="Findings">
            {findings.map((f) => (
              <li key={`${f.check} ${f.detail}`}>
                <Badge tone={tones[f.result]} icon={icons[f.result]}>
                  {f.result}
                </Badge>
                <div>
                  <h2>
                    <Inert text={f.check} />
                  </h2>
                  <p>
                    <Inert text={f.detail} />
                  </p>
                  {f.fix && <Fix text={f.fix} />}
                </div>
              </li>
            ))}
          </ul>
        </>
      )}
    </Page>
  );
}

function Fix({ text }: { text: string }) {
  const fix = fixOf(text);
  return (
    <p className="d-fix">
      <span className="quiet">To correct it: </span>
      {fix.command ? <CopyText text={fix.command} /> : <Inert text={fix.text} />}
    </p>
  );
}
