package warmpool

import "testing"

func TestParseMemory(t *testing.T) {
	const info = "MemTotal:       24672944 kB\nMemFree:        1 kB\nMemAvailable:   16000000 kB\nHugePages_Total:       0\n"
	const stalls = "some avg10=12.50 avg60=3.00 avg300=0.10 total=1\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1\n"
	m, err := parseMemory([]byte(info), []byte(stalls))
	if err != nil || m.Total != 24672944<<10 || m.Available != 16000000<<10 || m.Stalled != 12.5 {
		t.Errorf("parseMemory: got %+v, %v", m, err)
	}
	if m, err := parseMemory([]byte(info), nil); err != nil || m.Stalled != 0 {
		t.Errorf("without stalls: %+v, %v", m, err)
	}
	// Memory that cannot be read does not count as plenty.
	for name, text := range map[string][2]string{
		"empty": {"", ""}, "no available": {"MemTotal: 5 kB\n", ""}, "no number": {"MemTotal: x kB\nMemAvailable: 5 kB\n", ""},
		"stalls": {info, "some avg10=x avg60=0\n"},
	} {
		if m, err := parseMemory([]byte(text[0]), []byte(text[1])); err == nil {
			t.Errorf("%s is taken for %+v", name, m)
		}
	}
	if m, err := hostMemory(); err != nil || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("this machine has %+v, %v", m, err)
	}
}
