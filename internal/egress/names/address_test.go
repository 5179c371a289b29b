package names_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/fault"
)

// anyAddress contains everything that a rule can allow.
var anyAddress = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func TestPublicAddressesAreAllowed(t *testing.T) {
	for _, a := range []string{
		"93.184.216.34", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "169.253.0.1", "11.0.0.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15", "2606:4700::1111", "2a00:1450:4001::1", "2001:200::1", "::ffff:1.1.1.1",
		"64:ff9b::101:101", "2002:101:101::1", "2606:4700::5efe:1.1.1.1",
	} {
		if err := names.CheckAddress(netip.MustParseAddr(a), nil, nil); err != nil {
			t.Errorf("CheckAddress(%s): %v", a, err)
		}
	}
}

// Threat N10 (docs/reference/threat-model.md): the floor stays denied under a rule that allows
// everything, in every form of an address.
func TestFloorIsDeniedUnderEveryRule(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "169.254.169.254", "169.254.0.23", "224.0.0.1", "239.255.255.255",
		"240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192",
		"::", "::1", "::7f00:1", "fe80::1", "febf::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42",
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:169.254.169.254",
		"64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b:1::1.1.1.1", "64:ff9b:1:a9fe:a9:fe00::",
		"2002:a9fe:a9fe::1", "2002:7f00:1::", "2001:0:101:101::5601:5601", // Teredo: 169.254.169.254 inverted
		"2606:4700::5efe:169.254.169.254", "2606:4700::200:5efe:127.0.0.1", "fd12::5efe:127.0.0.1",
	} {
		err := names.CheckAddress(netip.MustParseAddr(a), anyAddress, nil)
		if fault.CodeOf(err) != "address_never" {
			t.Errorf("CheckAddress(%s) = %v, want address_never", a, err)
		}
	}
}

// Threat N10 (docs/reference/threat-model.md): private ranges are allowed only by their own CIDR,
// as an IPv4 address or within an IPv6 one.
func TestPrivateRangesNeedTheirCIDR(t *testing.T) {
	other := []netip.Prefix{netip.MustParsePrefix("10.20.0.0/24"), netip.MustParsePrefix("fd77::/64")}
	for _, a := range []string{
		"10.0.0.5", "100.64.0.1", "100.127.255.255", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.31.196.1",
		"192.52.193.1", "192.88.99.1", "192.168.1.1", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
		"2001:0:4136:e378::f7f7:f7f7", "2001:db8::1", "2001:20::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "fc00::1", "fdff::1",
		"fec0::1", "5f00::1", "100::1", "100:0:0:1::1", "4000::1", "::ffff:10.0.0.5",
		"64:ff9b::10.0.0.5", "2002:a00:5::1", "2606:4700::5efe:192.168.1.1",
	} {
		addr := netip.MustParseAddr(a)
		if err := names.CheckAddress(addr, nil, nil); fault.CodeOf(err) != "address_private" {
			t.Errorf("CheckAddress(%s) = %v, want address_private", a, err)
		}
		if err := names.CheckAddress(addr, other, nil); fault.CodeOf(err) != "address_private" {
			t.Errorf("CheckAddress(%s) under another range = %v, want address_private", a, err)
		}
		if err := names.CheckAddress(addr, anyAddress, nil); err != nil {
			t.Errorf("CheckAddress(%s) with all ranges allowed: %v", a, err)
		}
	}
	for _, a := range []string{"10.20.0.7", "::ffff:10.20.0.7", "64:ff9b::10.20.0.7", "fd77::1"} {
		if err := names.CheckAddress(netip.MustParseAddr(a), other, nil); err != nil {
			t.Errorf("CheckAddress(%s) with its range allowed: %v", a, err)
		}
	}
}

func TestOwnAddressesAreDeniedUnderEveryRule(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("2606:4700::1")}
	for _, a := range []string{"93.184.216.34", "10.0.0.9", "2606:4700::1", "::ffff:93.184.216.34", "64:ff9b::10.0.0.9"} {
		if err := names.CheckAddress(netip.MustParseAddr(a), anyAddress, own); fault.CodeOf(err) != "address_own" {
			t.Errorf("CheckAddress(%s) = %v, want address_own", a, err)
		}
	}
	if err := names.CheckAddress(netip.MustParseAddr("93.184.216.35"), nil, own); err != nil {
		t.Errorf("CheckAddress of an address beside the own one: %v", err)
	}
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("2606:4700::1%eth0"), netip.MustParseAddr("::ffff:1.1.1.1%lo")} {
		if err := names.CheckAddress(a, anyAddress, nil); fault.KindOf(err) != fault.Denied {
			t.Errorf("CheckAddress(%v) = %v, want Denied", a, err)
		}
	}
}

// The sandbox sees the public text of an error, which must not reveal internal addresses.
func TestErrorTextsOmitAddress(t *testing.T) {
	own := addresses("93.184.216.34")
	for _, a := range []string{"10.0.0.5", "127.0.0.1", "93.184.216.34", "4000::1"} {
		err := names.CheckAddress(netip.MustParseAddr(a), nil, own)
		if text := fault.PublicText(err) + fault.HintOf(err); err == nil || strings.Contains(text, a) || !strings.Contains(err.Error(), a) {
			t.Errorf("CheckAddress(%s): the sandbox sees %q, the log has %v", a, text, err)
		}
	}
}

// If an IPv4 address is denied, so is every IPv6 address that contains it.
func FuzzCheckAddress(f *testing.F) {
	f.Add([]byte{169, 254, 169, 254})
	f.Add([]byte{10, 0, 0, 5})
	f.Add([]byte{1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		bare, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		verdict := names.CheckAddress(bare, nil, nil)
		if verdict == nil && (bare.IsPrivate() || bare.IsLoopback() || bare.IsLinkLocalUnicast() || !bare.IsGlobalUnicast()) {
			t.Fatalf("CheckAddress allows %v", bare)
		}
		if !bare.Is4() || verdict == nil {
			return
		}
		q := bare.As4()
		for _, ipv6 := range [][16]byte{
			bare.As16(),
			{0: 0, 1: 0x64, 2: 0xff, 3: 0x9b, 12: q[0], 13: q[1], 14: q[2], 15: q[3]},
			{0: 0x20, 1: 0x02, 2: q[0], 3: q[1], 4: q[2], 5: q[3], 15: 1},
			{0: 0x20, 1: 0x01, 12: ^q[0], 13: ^q[1], 14: ^q[2], 15: ^q[3]},
			{0: 0x26, 1: 0x06, 10: 0x5e, 11: 0xfe, 12: q[0], 13: q[1], 14: q[2], 15: q[3]},
		} {
			if a := netip.AddrFrom16(ipv6); names.CheckAddress(a, nil, nil) == nil {
				t.Fatalf("CheckAddress allows %v, but denies %v", a, bare)
			}
		}
	})
}
