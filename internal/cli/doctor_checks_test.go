package cli

import (
	"strings"
	"testing"
)

func TestDoctorWarnsAboutProxies(t *testing.T) {
	a := newApp(Env{Vars: []string{"HTTPS_PROXY=http://user:hunter2@proxy.corp:3128", "no_proxy=x", "all_proxy=socks5://p", "HTTP_PROXY="}})
	f := (doctorVerbs{a}).checkProxies()
	if f.Result != resultWarn || !strings.HasPrefix(f.Detail, "HTTPS_PROXY, all_proxy set") || f.Fix == "" || strings.Contains(f.Detail, "hunter2") {
		t.Errorf("checkProxies: got %+v", f)
	}
	if f := (doctorVerbs{&app{}}).checkProxies(); f.Result != resultOK {
		t.Errorf("checkProxies: got %+v", f)
	}
}
