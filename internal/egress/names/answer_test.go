package names_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
)

func query(t testing.TB, name string, kind dnsmessage.Type, change ...func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0x1234, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	for _, c := range change {
		c(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lookupIn returns a sandbox's lookup function: it knows good.test and all names below wild.test.
func lookupIn(table *names.Table) func(string) (netip.Addr, bool) {
	return func(name string) (netip.Addr, bool) {
		if name != "good.test" && !strings.HasSuffix(name, ".wild.test") {
			return netip.Addr{}, false
		}
		a, err := table.Address(name)
		return a, err == nil
	}
}

func ask(t testing.TB, q []byte) (dnsmessage.Message, names.Asked) {
	t.Helper()
	reply, asked, err := names.Answer(q, 512, lookupIn(names.NewTable()))
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	if !m.Response || m.ID != 0x1234 {
		t.Fatalf("the reply has the header %+v", m.Header)
	}
	return m, asked
}

func TestAnswerKnownName(t *testing.T) {
	m, asked := ask(t, query(t, "GooD.test.", dnsmessage.TypeA))
	if m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 || !m.RecursionAvailable || !m.RecursionDesired {
		t.Fatalf("the reply is %+v, want one answer", m)
	}
	if a := netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A); !egress.Synthetic.Contains(a) {
		t.Errorf("the address is %v, want a synthetic one", a)
	}
	// Clients that mix upper and lower case to detect forged answers expect the same spelling.
	if got := m.Questions[0].Name.String(); got != "GooD.test." {
		t.Errorf("the question in the reply is %q, want GooD.test.", got)
	}
	if asked != (names.Asked{Name: "good.test", Type: "A"}) {
		t.Errorf("the query is described as %+v, want good.test and A", asked)
	}
}

// Threat N4 (docs/reference/threat-model.md), for DNS: types that bypass the address have no
// records, and types that carry data are refused.
func TestAnswerByRecordType(t *testing.T) {
	for kind, want := range map[dnsmessage.Type]struct {
		name string
		code dnsmessage.RCode
	}{
		dnsmessage.TypeAAAA: {"AAAA", 0}, 65: {"HTTPS", 0}, 64: {"SVCB", 0}, dnsmessage.TypePTR: {"PTR", dnsmessage.RCodeNameError},
		dnsmessage.TypeTXT: {"TXT", dnsmessage.RCodeRefused}, dnsmessage.TypeMX: {"MX", dnsmessage.RCodeRefused}, 10: {"TYPE10", dnsmessage.RCodeRefused},
		dnsmessage.TypeALL: {"ANY", dnsmessage.RCodeRefused}, dnsmessage.TypeAXFR: {"AXFR", dnsmessage.RCodeRefused}, dnsmessage.TypeSRV: {"SRV", dnsmessage.RCodeRefused},
		dnsmessage.TypeCNAME: {"CNAME", dnsmessage.RCodeRefused}, dnsmessage.TypeNS: {"NS", dnsmessage.RCodeRefused}, 65535: {"TYPE65535", dnsmessage.RCodeRefused},
	} {
		m, asked := ask(t, query(t, "good.test.", kind))
		if m.RCode != want.code || len(m.Answers) != 0 || asked.Type != want.name || asked.Refused != (want.code == dnsmessage.RCodeRefused) {
			t.Errorf("type %v: code %v, %d answers, described as %+v, want code %v", kind, m.RCode, len(m.Answers), asked, want.code)
		}
	}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, 65} {
		for _, name := range []string{"bad.test.", "ood.test.", ".", "a_b.wild.test.", "127.0.0.1.", "good.test.evil.test."} {
			if m, asked := ask(t, query(t, name, kind)); m.RCode != dnsmessage.RCodeNameError || len(m.Answers) != 0 || asked.Refused {
				t.Errorf("%s, type %v: code %v, described as %+v, want a name error", name, kind, m.RCode, asked)
			}
		}
	}
}

// Threat N3 (docs/reference/threat-model.md): a sandbox that writes data into names and types sends
// nothing out, because only a dial resolves names.
func TestAnswerSendsNoQueries(t *testing.T) {
	r := &resolver{answers: [][]netip.Addr{addresses("93.184.216.34")}}
	w := &dialRecorder{}
	d := &names.Dialer{Resolver: r, DialAddress: w.dial}
	for i := range 20 {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, 65} {
			ask(t, query(t, fmt.Sprintf("x%d.evil.test.", i), kind))
			ask(t, query(t, fmt.Sprintf("x%d.wild.test.", i), kind))
		}
	}
	if len(r.asked) != 0 {
		t.Fatalf("the host's resolver was asked for %v, want nothing", r.asked)
	}
	if _, err := d.Dial(t.Context(), "x1.wild.test", 443, nil); err != nil || len(r.asked) != 1 {
		t.Fatalf("control: a dial resolved %v, want one name: %v", r.asked, err)
	}
}

func TestAnswerEDNS(t *testing.T) {
	opt := func(version uint32) func(*dnsmessage.Message) {
		return func(m *dnsmessage.Message) {
			var h dnsmessage.ResourceHeader
			if err := h.SetEDNS0(4096, 0, true); err != nil {
				t.Fatal(err)
			}
			h.TTL |= version << 16
			m.Additionals = append(m.Additionals, dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{
				Options: []dnsmessage.Option{{Code: 10, Data: []byte("12345678")}},
			}})
		}
	}
	m, _ := ask(t, query(t, "good.test.", dnsmessage.TypeA, opt(0)))
	if len(m.Answers) != 1 || len(m.Additionals) != 1 || m.Additionals[0].Header.Class != 1232 {
		t.Errorf("version 0: the reply is %+v, want one answer with EDNS", m)
	}
	m, _ = ask(t, query(t, "good.test.", dnsmessage.TypeA, opt(1)))
	if len(m.Answers) != 0 || len(m.Additionals) != 1 || m.Additionals[0].Header.ExtendedRCode(m.RCode) != 16 {
		t.Errorf("version 1: the reply is %+v, want BADVERS", m)
	}
	if m, _ = ask(t, query(t, "good.test.", dnsmessage.TypeA, opt(0), opt(0))); m.RCode != dnsmessage.RCodeFormatError {
		t.Errorf("two OPT records: the reply is %+v, want a format error", m)
	}
}

func TestAnswerRejectsMalformedQueries(t *testing.T) {
	good := query(t, "good.test.", dnsmessage.TypeA)
	for i := 12; i < len(good); i++ {
		if m, asked := ask(t, good[:i]); m.RCode != dnsmessage.RCodeFormatError || !asked.Refused {
			t.Errorf("a query cut at byte %d: code %v, want a format error", i, m.RCode)
		}
	}
	for name, c := range map[string]struct {
		change func(*dnsmessage.Message)
		code   dnsmessage.RCode
	}{
		"two questions": {func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }, dnsmessage.RCodeFormatError},
		"no question":   {func(m *dnsmessage.Message) { m.Questions = nil }, dnsmessage.RCodeFormatError},
		"update":        {func(m *dnsmessage.Message) { m.OpCode = 5 }, dnsmessage.RCodeNotImplemented},
		"chaos":         {func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }, dnsmessage.RCodeRefused},
	} {
		if m, asked := ask(t, query(t, "good.test.", dnsmessage.TypeA, c.change)); m.RCode != c.code || !asked.Refused || len(m.Answers) != 0 {
			t.Errorf("%s: code %v, described as %+v, want code %v", name, m.RCode, asked, c.code)
		}
	}
	reply := query(t, "good.test.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = true })
	for _, bad := range [][]byte{nil, good[:11], reply} {
		if r, _, err := names.Answer(bad, 512, lookupIn(names.NewTable())); err == nil {
			t.Errorf("the message %x, which is no query, got the reply %x", bad, r)
		}
	}
	if r, _, err := names.Answer(good, 20, lookupIn(names.NewTable())); err == nil {
		t.Errorf("a limit of 20 bytes yields a reply of %d", len(r))
	}
}

func FuzzAnswer(f *testing.F) {
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, 65} {
		f.Add(query(f, "good.test.", kind))
		f.Add(query(f, "x.wild.test.", kind))
	}
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, q []byte) {
		table := names.NewTable()
		reply, asked, err := names.Answer(q, 512, lookupIn(table))
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || len(reply) > 512 || !m.Response {
			t.Fatalf("the query %x got the invalid reply %x: %v", q, reply, err)
		}
		if byte(m.ID>>8) != q[0] || byte(m.ID) != q[1] {
			t.Fatal("the reply has another ID")
		}
		for _, c := range asked.Name {
			if c < ' ' || c > '~' {
				t.Fatalf("the described name %q has characters that are not printable ASCII", asked.Name)
			}
		}
		for _, r := range m.Answers {
			a, ok := r.Body.(*dnsmessage.AResource)
			if !ok {
				t.Fatalf("the reply has a record of type %v, want A only", r.Header.Type)
			}
			if name, ok := table.Name(netip.AddrFrom4(a.A)); !ok || name != asked.Name {
				t.Fatalf("the address %v belongs to %q, but the query was for %q", a.A, name, asked.Name)
			}
		}
	})
}
