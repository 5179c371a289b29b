package e2b_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

func TestCreateResponseHasRequiredFields(t *testing.T) {
	sandboxes, h := newAPI(t)
	w := do(h, "POST", "/v2/sandboxes", `{"templateID":" Base:default ","metadata":{"a b":"ü"},"envVars":{"K":"v"},"unknown":[1]}`)
	if w.Code != http.StatusCreated {
		t.Fatalf("POST /v2/sandboxes: got %d %s", w.Code, w.Body)
	}
	got := object(t, w)
	for field, want := range map[string]any{
		"sandboxID": sandboxes.list[0].ID, "templateID": templateID, "clientID": "crannog", "alias": "base",
		"envdVersion": "0.6.13", "envdAccessToken": "token1", "trafficAccessToken": nil, "domain": "sbx.example:8443",
	} {
		if v, there := got[field]; v != want || !there {
			t.Errorf("%s = %v (%v), want %v", field, v, there, want)
		}
	}
	if sandboxes.last.Metadata["a b"] != "ü" || sandboxes.last.Env["K"] != "v" || sandboxes.last.Template != "base" {
		t.Errorf("the service got %+v", sandboxes.last)
	}
}

func TestCreateTimeout(t *testing.T) {
	for _, c := range []struct {
		path, timeout string
		want          time.Duration // 0 is an error
	}{
		{"/sandboxes", "", 15 * time.Second},
		{"/v2/sandboxes", "", 5 * time.Minute},
		{"/sandboxes", `,"timeout":60`, time.Minute},
		{"/v2/sandboxes", `,"timeout":null`, 5 * time.Minute},
		{"/v2/sandboxes", `,"timeout":0`, 0},
		{"/v2/sandboxes", `,"timeout":-5`, 0},
		{"/v2/sandboxes", `,"timeout":2147483648`, 0},
		{"/v2/sandboxes", `,"timeout":9223372036854775807`, 0},
	} {
		sandboxes, h := newAPI(t)
		w := do(h, "POST", c.path, `{"templateID":"base"`+c.timeout+`}`)
		if c.want == 0 {
			wantFailure(t, w, http.StatusBadRequest, "timeout_invalid", "Timeout must be")
			continue
		}
		if w.Code != http.StatusCreated || sandboxes.last.Timeout != c.want {
			t.Errorf("%s %s: %d, timeout %s, want %s", c.path, c.timeout, w.Code, sandboxes.last.Timeout, c.want)
		}
	}
}

func TestCreateAcceptsFlagsOfOldClients(t *testing.T) {
	_, h := newAPI(t)
	for _, flags := range []string{
		`"secure":true,"timeout":300,"allow_internet_access":true`,
		`"secure":false,"allow_internet_access":false`,
		`"autoPause":false,"autoResume":{"enabled":false},"autoPauseMemory":true`,
		`"mcp":null,"volumeMounts":[],"iam":{},"network":{"allowOut":[],"denyOut":[],"egressProxy":null}`,
	} {
		if w := do(h, "POST", "/sandboxes", `{"templateID":"base",`+flags+`}`); w.Code != http.StatusCreated {
			t.Errorf("%s: %d %s", flags, w.Code, w.Body)
		}
	}
}

// TestCreateWithContainers checks that containers inside are off unless the request asks for them.
func TestCreateWithContainers(t *testing.T) {
	for body, want := range map[string]bool{
		`{"templateID":"base"}`: false, `{"templateID":"base","containers":false}`: false, `{"templateID":"base","containers":true}`: true,
	} {
		sandboxes, h := newAPI(t)
		if w := do(h, "POST", "/sandboxes", body); w.Code != http.StatusCreated || sandboxes.last.Containers != want {
			t.Errorf("%s: %d, containers %t, want %t", body, w.Code, sandboxes.last.Containers, want)
		}
	}
	_, h := newAPI(t)
	if w := do(h, "POST", "/sandboxes", `{"templateID":"base","containers":"yes"}`); w.Code != http.StatusBadRequest {
		t.Errorf("a text: got %d %s, want 400", w.Code, w.Body)
	}
}

func TestCreateRejectsUnsupportedFields(t *testing.T) {
	sandboxes, h := newAPI(t)
	for _, field := range []string{
		`"mcp":{}`,
		`"iam":{"tokens":{"a":{"audience":"x","tokenType":"JWT-SVID"}}}`,
		`"network":{"egressProxy":{"address":"x:1"}}`,
		`"network":{"httpsPorts":[443]}`,
	} {
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			w := do(h, "POST", path, `{"templateID":"base",`+field+`}`)
			wantFailure(t, w, http.StatusNotImplemented, "not_supported", "is not supported by this server yet")
		}
	}
	if sandboxes.made != 0 {
		t.Errorf("%d sandboxes were created by rejected requests, want none", sandboxes.made)
	}
}

func TestCreateRejectsInvalidInput(t *testing.T) {
	sandboxes, h := newAPI(t)
	deep := strings.Repeat("[", 200_000)
	for _, c := range []struct {
		body, code string
		status     int
	}{
		{``, "body_missing", 400},
		{`   `, "body_missing", 400},
		{`null`, "body_invalid", 400},
		{`[]`, "body_invalid", 400},
		{`"x"`, "body_invalid", 400},
		{`{`, "body_invalid", 400},
		{`{"templateID":"base"} {}`, "body_invalid", 400},
		{`{"templateID":"base"}x`, "body_invalid", 400},
		{`{"x":` + deep, "body_invalid", 400},
		{`{"mcp":{"x":` + deep, "body_invalid", 400},
		{`{"templateID":7}`, "field_invalid", 400},
		{`{"templateID":"base","timeout":"60"}`, "field_invalid", 400},
		{`{"templateID":"base","timeout":1.5}`, "field_invalid", 400},
		{`{"templateID":"base","timeout":1e400}`, "field_invalid", 400},
		{`{"templateID":"base","metadata":{"a":1}}`, "field_invalid", 400},
		{`{"templateID":"base","metadata":["a"]}`, "field_invalid", 400},
		{`{"templateID":"base","envVars":{"a":null,"b":[]}}`, "field_invalid", 400},
		{`{"templateID":"base","secure":"yes"}`, "field_invalid", 400},
		{`{"templateID":"base","allow_internet_access":1}`, "field_invalid", 400},
		{`{"templateID":"base","network":[]}`, "field_invalid", 400},
		{`{"templateID":"base","limits":[]}`, "field_invalid", 400},
		{`{"templateID":"base","limits":{"memoryMB":"1"}}`, "field_invalid", 400},
		{`{}`, "template_missing", 400},
		{`{"templateID":"../etc"}`, "template_reference_invalid", 400},
		{`{"templateID":"a/b/c"}`, "template_reference_invalid", 400},
		{`{"templateID":"nope"}`, "template_not_found", 404},
		{`{"templateID":"base:v9"}`, "template_tag_not_found", 404},
		{`{"templateID":"base","autoPauseMemory":false}`, "auto_pause_invalid", 400},
		{`{"templateID":"base","autoPause":false,"autoPauseMemory":false}`, "auto_pause_invalid", 400},
		{`{"templateID":"base","autoPause":"yes"}`, "field_invalid", 400},
		{`{"templateID":"base","autoResume":true}`, "field_invalid", 400},
		{`{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, "auto_pause_invalid", 400},
		{`{"templateID":"base","network":{"maskRequestHost":"hé"}}`, "mask_request_host_invalid", 400},
		{`{"templateID":"base","network":{"maskRequestHost":"a\r\nX: y"}}`, "mask_request_host_invalid", 400},
		{`{"templateID":"base","network":{"maskRequestHost":"` + strings.Repeat("a", 256) + `"}}`, "mask_request_host_invalid", 400},
		{`{"templateID":"base","metadata":{"k":"` + strings.Repeat("x", 1<<20) + `"}}`, "body_too_large", 413},
	} {
		wantFailure(t, do(h, "POST", "/v2/sandboxes", c.body), c.status, c.code, "")
	}
	if sandboxes.made != 0 {
		t.Errorf("%d sandboxes were created by rejected requests, want none", sandboxes.made)
	}
}

func TestUnknownTemplateErrorText(t *testing.T) {
	_, h := newAPI(t)
	wantFailure(t, do(h, "POST", "/sandboxes", `{"templateID":"Nope"}`), 404, "template_not_found", "template 'nope' not found")
	wantFailure(t, do(h, "POST", "/sandboxes", `{"templateID":"base:v9"}`), 404, "template_tag_not_found",
		"tag 'v9' does not exist for template 'base'")
}

func TestCreateLimits(t *testing.T) {
	sandboxes, h := newAPI(t)
	create(t, h, `{"templateID":"base","limits":{"memoryMB":64,"cpuMillis":500,"pids":32,"diskMB":128,"inodes":1000,`+
		`"commandTimeoutSeconds":9,"outputBytes":4096,"later":true}}`)
	want := sandbox.Limits{
		Limits:         engine.Limits{MemoryBytes: 64 << 20, MilliCPU: 500, PIDs: 32, DiskBytes: 128 << 20, DiskInodes: 1000},
		CommandTimeout: 9 * time.Second, OutputBytes: 4096,
	}
	if sandboxes.last.Limits != want {
		t.Errorf("the service got %+v, want %+v", sandboxes.last.Limits, want)
	}
	create(t, h, `{"templateID":"base"}`)
	if sandboxes.last.Limits != (sandbox.Limits{}) {
		t.Errorf("without limits the service got %+v", sandboxes.last.Limits)
	}
	for _, name := range []string{"memoryMB", "cpuMillis", "pids", "diskMB", "inodes", "shmMB", "commandTimeoutSeconds", "outputBytes"} {
		for _, value := range []string{"0", "-1"} {
			w := do(h, "POST", "/v2/sandboxes", fmt.Sprintf(`{"templateID":"base","limits":{%q:%s}}`, name, value))
			wantFailure(t, w, http.StatusBadRequest, "limits_invalid", name)
		}
	}
	for _, name := range []string{"memoryMB", "diskMB", "commandTimeoutSeconds"} {
		w := do(h, "POST", "/v2/sandboxes", fmt.Sprintf(`{"templateID":"base","limits":{%q:9223372036854775807}}`, name))
		wantFailure(t, w, http.StatusBadRequest, "limits_invalid", name)
	}
}

func TestCreatePrivatePortsAndMaskedHost(t *testing.T) {
	sandboxes, h := newAPI(t)
	w := do(h, "POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}"}}`)
	if got := object(t, w); got["trafficAccessToken"] != "traffic" {
		t.Errorf("got response %v, want a traffic token", got)
	}
	if !sandboxes.last.PrivatePorts || sandboxes.last.MaskRequestHost != "localhost:${PORT}" {
		t.Errorf("the service got %+v", sandboxes.last)
	}
	detail := object(t, do(h, "GET", "/sandboxes/"+sandboxes.list[0].ID, ""))
	network := detail["network"].(map[string]any)
	if network["allowPublicTraffic"] != false || network["maskRequestHost"] != "localhost:${PORT}" {
		t.Errorf("info shows %v", network)
	}
	create(t, h, `{"templateID":"base","network":{"allowPublicTraffic":true}}`)
	if sandboxes.last.PrivatePorts {
		t.Error("public ports became private")
	}
}

// TestF3VolumesHaveNames checks that E2B's volumes are volumes of the caller, or directories that
// the operator shares by name. A name never becomes a path of the host, even if it looks like one.
func TestF3VolumesHaveNames(t *testing.T) {
	sandboxes, h := newAPI(t)
	w := do(h, "POST", "/v2/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"data","path":"/mnt/data"},{"name":"/etc","path":"/x"}]}`)
	want := []sandbox.VolumeMount{{Name: "data", Target: "/mnt/data", OrShared: true}, {Name: "/etc", Target: "/x", OrShared: true}}
	if w.Code != http.StatusCreated || !slices.Equal(sandboxes.last.Volumes, want) || len(sandboxes.last.Mounts) != 0 {
		t.Errorf("%d %s: %+v %+v", w.Code, w.Body, sandboxes.last.Volumes, sandboxes.last.Mounts)
	}
	w = do(h, "POST", "/v2/sandboxes", `{"templateID":"base","volumeMounts":[{"path":"/etc"}]}`)
	if w.Code != http.StatusBadRequest {
		t.Errorf("volume without a name: got %d %s, want 400", w.Code, w.Body)
	}
}
