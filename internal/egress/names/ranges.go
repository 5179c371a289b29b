package names

// floorRows has the ranges that no rule can allow: this machine, its links, its cloud's metadata
// service, everything that is not a single host, and ranges with an embedded IPv4 address at an
// unknown position. Each row has the range, its purpose, and the source.
var floorRows = [][3]string{
	{"0.0.0.0/8", "this network, which Linux takes for this machine", "RFC 791 section 3.2, RFC 1122 section 3.2.1.3"},
	{"127.0.0.0/8", "the loopback of this machine", "RFC 1122 section 3.2.1.3"},
	{"169.254.0.0/16", "link-local, where clouds keep their metadata", "RFC 3927; AWS, Google, Azure and OpenStack use 169.254.169.254"},
	{"224.0.0.0/4", "multicast", "RFC 5771"},
	{"240.0.0.0/4", "reserved, and the broadcast address", "RFC 1112 section 4, RFC 919"},
	{"100.100.100.200/32", "Alibaba Cloud's metadata service", "Alibaba Cloud ECS manual, instance metadata"},
	{"168.63.129.16/32", "Azure's wire server", "Azure manual, what is IP address 168.63.129.16"},
	{"192.0.0.192/32", "Oracle Cloud Classic's metadata service", "Oracle Compute Cloud Service manual, instance metadata"},
	{"::/96", "unspecified, loopback or IPv4-compatible", "RFC 4291 sections 2.5.2, 2.5.3 and 2.5.5.1"},
	{"::ffff:0:0:0/96", "IPv4-translated", "RFC 2765 section 2.1"},
	{"64:ff9b:1::/48", "NAT64 of local use, where the place of the IPv4 address is the network's choice", "RFC 8215"},
	{"fe80::/10", "link-local", "RFC 4291 section 2.5.6"},
	{"ff00::/8", "multicast", "RFC 4291 section 2.7"},
	{"fd00:ec2::/32", "the metadata service of AWS", "AWS EC2 manual, instance metadata over IPv6: fd00:ec2::254"},
	{"fd20:ce::254/128", "the metadata service of Google Cloud", "Google Compute Engine manual, metadata server over IPv6"},
	{"fd00:42::42/128", "the metadata service of Scaleway", "Scaleway manual, user data over IPv6"},
}

// specialRows has the ranges that only a rule's cidrs can allow: IANA's IPv4 and IPv6
// Special-Purpose Address Registries (RFC 6890), except for the floor. It includes ranges that the
// registries call globally reachable if they lead to a service of the network instead of a host.
// IPv6 outside of 2000::/3 needs no row.
var specialRows = [][3]string{
	{"10.0.0.0/8", "private", "RFC 1918"},
	{"100.64.0.0/10", "shared between a carrier and its customers", "RFC 6598"},
	{"172.16.0.0/12", "private", "RFC 1918"},
	{"192.0.0.0/24", "for protocol assignments", "RFC 6890 section 2.1, with RFC 7335, 7600, 7723, 8155 and 8880"},
	{"192.0.2.0/24", "for documentation", "RFC 5737"},
	{"192.31.196.0/24", "a sink for stray DNS queries", "RFC 7535"},
	{"192.52.193.0/24", "for multicast tunnels", "RFC 7450"},
	{"192.88.99.0/24", "the retired 6to4 relay", "RFC 7526, RFC 6751"},
	{"192.168.0.0/16", "private", "RFC 1918"},
	{"192.175.48.0/24", "a sink for stray DNS queries", "RFC 7534"},
	{"198.18.0.0/15", "for benchmarks, and where this sandbox's own names are", "RFC 2544"},
	{"198.51.100.0/24", "for documentation", "RFC 5737"},
	{"203.0.113.0/24", "for documentation", "RFC 5737"},
	{"2001::/23", "for protocol assignments, Teredo among them", "RFC 2928, with RFC 4380, 5180, 7343, 7450, 7535, 7723, 8155, 9374 and 9665"},
	{"2001:db8::/32", "for documentation", "RFC 3849"},
	{"2620:4f:8000::/48", "a sink for stray DNS queries", "RFC 7534"},
	{"3fff::/20", "for documentation", "RFC 9637"},
	{"fc00::/7", "private", "RFC 4193"},
	{"fec0::/10", "site-local, retired", "RFC 3879"},
	{"5f00::/16", "for segment routing", "RFC 9602"},
	{"100::/64", "for discarding", "RFC 6666"},
	{"100:0:0:1::/64", "a dummy prefix", "RFC 9780"},
}
