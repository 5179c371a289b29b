package names

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/fault"
)

// Asked describes a query, for its flow entry.
type Asked struct {
	// Name is canonical if possible. Otherwise it is the received name, with everything but
	// printable ASCII escaped.
	Name string
	// Type is the record type: "A", "HTTPS", "TYPE99".
	Type string
	// Refused is set if the type or the whole query was refused, independently of the name.
	Refused bool
}

const (
	// ttl is how long a sandbox may cache an address. A name keeps its address, so the TTL only
	// limits the delay until a sandbox notices a changed policy.
	ttl = 60
	// payload is the size in the EDNS record of answers: one Ethernet frame.
	payload = 1232
	// smallest is the size that every DNS client accepts (RFC 1035 section 2.3.4). All answers are
	// smaller.
	smallest = 512

	typeSVCB  dnsmessage.Type = 64 // RFC 9460
	typeHTTPS dnsmessage.Type = 65

	codeVersion dnsmessage.RCode = 16 // BADVERS, RFC 6891
)

// Answer answers a DNS query. lookup returns the address of a name. Queries are never forwarded, so
// they cannot carry data out. A known name has one IPv4 address. It has no records of the types
// AAAA, HTTPS and SVCB, with which a program could bypass that address. Types that could carry data
// in or transfer a zone are refused. Names for which lookup returns false do not exist. The reply
// has at most limit bytes. A message that is not a query gets an error and no reply, because two
// servers that answer replies would never stop.
func Answer(query []byte, limit int, lookup func(name string) (netip.Addr, bool)) (reply []byte, q Asked, err error) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil, Asked{Refused: true}, fault.New(fault.Invalid, "dns_not_a_query", "a DNS message is not a query")
	}
	r := answer{id: header.ID, opCode: header.OpCode, recursion: header.RecursionDesired, limit: limit}
	questions, err := p.AllQuestions()
	switch {
	case header.OpCode != 0:
		r.code = dnsmessage.RCodeNotImplemented
	case err != nil || len(questions) != 1:
		r.code = dnsmessage.RCodeFormatError
	default:
		r.question = questions[0]
		if r.edns, r.code = extension(&p); r.code == dnsmessage.RCodeSuccess {
			q, err := r.resolve(lookup)
			if err != nil {
				return nil, q, err
			}
			reply, err = r.pack()
			return reply, q, err
		}
	}
	q = Asked{Refused: true}
	if r.question.Name.Length > 0 {
		q = asked(r.question)
		q.Refused = true
	}
	reply, err = r.pack()
	return reply, q, err
}

// extension skips the data after the question and finds the EDNS record.
func extension(p *dnsmessage.Parser) (found bool, code dnsmessage.RCode) {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false, dnsmessage.RCodeFormatError
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return found, dnsmessage.RCodeSuccess
		}
		if err != nil || p.SkipAdditional() != nil {
			return false, dnsmessage.RCodeFormatError
		}
		if h.Type != dnsmessage.TypeOPT {
			continue
		}
		// RFC 6891 section 6.1.1: one OPT record, of the root.
		if found || h.Name.String() != "." {
			return false, dnsmessage.RCodeFormatError
		}
		found = true
		if h.TTL>>16&0xff != 0 {
			return true, codeVersion
		}
	}
}

// answer is a reply under construction.
type answer struct {
	id        uint16
	opCode    dnsmessage.OpCode
	recursion bool
	edns      bool
	limit     int
	code      dnsmessage.RCode
	question  dnsmessage.Question
	address   netip.Addr // of the only record, if valid
}

func (r *answer) resolve(lookup func(name string) (netip.Addr, bool)) (Asked, error) {
	q := asked(r.question)
	if r.question.Class != dnsmessage.ClassINET {
		q.Refused = true
		r.code = dnsmessage.RCodeRefused
		return q, nil
	}
	switch r.question.Type {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA, typeHTTPS, typeSVCB:
	case dnsmessage.TypePTR:
		// Programs look up the names of their peers, and wait if the query is refused.
		r.code = dnsmessage.RCodeNameError
		return q, nil
	default:
		q.Refused = true
		r.code = dnsmessage.RCodeRefused
		return q, nil
	}
	name, err := Canonical(r.question.Name.String())
	if err != nil {
		r.code = dnsmessage.RCodeNameError
		return q, nil
	}
	address, known := lookup(name)
	if !known {
		r.code = dnsmessage.RCodeNameError
		return q, nil
	}
	if !address.Is4() {
		return q, fault.Newf(fault.Internal, "dns_no_address", "%s has no IPv4 address in the table of names", name)
	}
	if r.question.Type == dnsmessage.TypeA {
		r.address = address
	}
	return q, nil
}

func (r *answer) pack() ([]byte, error) {
	b := dnsmessage.NewBuilder(make([]byte, 0, smallest), dnsmessage.Header{
		ID: r.id, Response: true, OpCode: r.opCode, RecursionDesired: r.recursion, RecursionAvailable: true,
		RCode: r.code & 0xf,
	})
	// With compression, even the reply for the longest name has less than 512 bytes.
	b.EnableCompression()
	var err error
	step := func(e error) {
		if err == nil {
			err = e
		}
	}
	if r.question.Name.Length > 0 {
		step(b.StartQuestions())
		step(b.Question(r.question))
	}
	if r.address.IsValid() {
		step(b.StartAnswers())
		step(b.AResource(dnsmessage.ResourceHeader{Name: r.question.Name, Class: dnsmessage.ClassINET, TTL: ttl},
			dnsmessage.AResource{A: r.address.As4()}))
	}
	if r.edns {
		var h dnsmessage.ResourceHeader
		step(h.SetEDNS0(payload, r.code, false))
		step(b.StartAdditionals())
		step(b.OPTResource(h, dnsmessage.OPTResource{}))
	}
	reply, e := b.Finish()
	step(e)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "dns_reply", "a DNS reply could not be written")
	}
	if len(reply) > r.limit {
		return nil, fault.Newf(fault.Invalid, "dns_reply_too_long", "a DNS reply of %d bytes is longer than the %d allowed", len(reply), r.limit)
	}
	return reply, nil
}

func asked(q dnsmessage.Question) Asked {
	kind := strings.TrimPrefix(q.Type.String(), "Type")
	switch q.Type {
	case typeSVCB:
		kind = "SVCB"
	case typeHTTPS:
		kind = "HTTPS"
	case dnsmessage.TypeALL:
		kind = "ANY"
	default:
		if kind[0] >= '0' && kind[0] <= '9' {
			kind = "TYPE" + kind
		}
	}
	raw := q.Name.String()
	name, err := Canonical(raw)
	if err != nil {
		escaped := strconv.QuoteToASCII(raw)
		name = escaped[1 : len(escaped)-1]
	}
	return Asked{Name: name, Type: kind}
}
