package trace

import (
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/capture"
)

const (
	// MostConnections is how many connections are followed; packets of others are
	// counted and no more.
	MostConnections = 64
	// mostLinks is how many links one station names.
	mostLinks = 4
)

// Target is the address whose connections are followed.
type Target struct {
	VIP      netip.AddrPort
	Protocol uint8
	// Backends are those that connections may be sent to.
	Backends []netip.AddrPort
	// Serving is how many of them take new connections.
	Serving int
	// From is the client that alone is followed; not valid for all.
	From netip.Addr
}

// Answer is one direction of a translated connection: the backend, and the peer that it answers.
type Answer struct{ Backend, Peer netip.AddrPort }

// sighting has the packets of one direction on one side.
type sighting struct {
	seen  bool
	at    time.Duration // first
	links []string
	reset bool // the first packet was a reset of TCP
}

// refusal is a message of ICMP about a connection.
type refusal struct {
	at   time.Duration
	link string
	by   netip.Addr
	text string
}

// front is the half of a connection that has the VIP.
type front struct {
	request, untouched, answer sighting
	refusals                   []refusal
	seq                        uint32 // sequence number of the first SYN
	syn                        bool
}

// back is the half that has the backend.
type back struct {
	request, answer sighting
	refusals        []refusal
	seq             uint32
	syn             bool

	asked    int
	resolved bool
	client   netip.AddrPort
	dialled  netip.AddrPort
}

// Tracer collects what was seen.
type Tracer struct {
	target   Target
	fronts   map[netip.AddrPort]*front // by client
	backs    map[Answer]*back
	order    []netip.AddrPort // clients, as they came
	answers  []Answer         // halves with a backend, as they came
	left     int              // connections that are not followed: there were too many
	backends map[netip.AddrPort]bool
}

// New returns a tracer that has seen nothing.
func New(target Target) *Tracer {
	t := &Tracer{target: target, fronts: map[netip.AddrPort]*front{}, backs: map[Answer]*back{}, backends: map[netip.AddrPort]bool{}}
	for _, b := range target.Backends {
		t.backends[b] = true
	}
	return t
}

// Add takes the next packet, and when it was seen. It reports whether the packet is of a connection
// that may be followed.
func (t *Tracer) Add(at time.Duration, p capture.Packet) bool {
	if p.Of != nil {
		return t.addRefusal(at, p)
	}
	if p.Protocol != t.target.Protocol {
		return false
	}
	switch {
	case p.Dst == t.target.VIP:
		return t.addRequest(at, p)
	case p.Src == t.target.VIP:
		f := t.front(p.Dst)
		if f != nil {
			f.answer.add(at, p)
		}
		return f != nil
	case t.backends[p.Dst]:
		b := t.back(Answer{p.Dst, p.Src})
		if b != nil {
			b.request.add(at, p)
			first(p, &b.syn, &b.seq)
		}
		return b != nil
	case t.backends[p.Src]:
		b := t.back(Answer{p.Src, p.Dst})
		if b != nil {
			b.answer.add(at, p)
		}
		return b != nil
	}
	return false
}

func (t *Tracer) addRequest(at time.Duration, p capture.Packet) bool {
	f := t.front(p.Src)
	if f == nil {
		return false
	}
	if p.Direction == capture.Out && p.Link != "lo" {
		f.untouched.add(at, p)
	} else {
		f.request.add(at, p)
	}
	first(p, &f.syn, &f.seq)
	return true
}

// addRefusal takes a message about either half.
func (t *Tracer) addRefusal(at time.Duration, p capture.Packet) bool {
	r := refusal{at: at, link: p.Link, by: p.Src.Addr(), text: p.Refusal}
	if p.Of.Protocol != t.target.Protocol {
		return false
	}
	if p.Of.Dst == t.target.VIP {
		if f := t.front(p.Of.Src); f != nil {
			keep(&f.refusals, r)
			return true
		}
	}
	if b := t.backs[Answer{p.Of.Dst, p.Of.Src}]; b != nil {
		keep(&b.refusals, r)
		return true
	}
	return false
}

// keep stores the first messages, of which only the meaning is printed.
func keep(list *[]refusal, r refusal) {
	if len(*list) < mostLinks {
		*list = append(*list, r)
	}
}

// first stores the sequence number that a connection of TCP begins with.
func first(p capture.Packet, seen *bool, seq *uint32) {
	if !*seen && p.Protocol == capture.TCP && p.Flags&(capture.SYN|capture.ACK) == capture.SYN {
		*seen, *seq = true, p.Seq
	}
}

func (s *sighting) add(at time.Duration, p capture.Packet) {
	if !s.seen {
		s.seen, s.at = true, at
		s.reset = p.Protocol == capture.TCP && p.Flags&capture.RST != 0
	}
	if p.Link != "" && len(s.links) < mostLinks && !slices.Contains(s.links, p.Link) {
		s.links = append(s.links, p.Link)
	}
}

// front is the half of a client; nil for one that is not followed.
func (t *Tracer) front(client netip.AddrPort) *front {
	if t.target.From.IsValid() && client.Addr() != t.target.From {
		return nil
	}
	f := t.fronts[client]
	if f == nil {
		if len(t.fronts) >= MostConnections {
			t.left++
			return nil
		}
		f = &front{}
		t.fronts[client] = f
		t.order = append(t.order, client)
	}
	return f
}

func (t *Tracer) back(a Answer) *back {
	b := t.backs[a]
	if b == nil {
		// Some are of other Services, and there may be many.
		if len(t.backs) >= 4*MostConnections {
			t.left++
			return nil
		}
		b = &back{}
		t.backs[a] = b
		t.answers = append(t.answers, a)
	}
	return b
}

// mostAsked is how often a half of unknown origin is looked up.
const mostAsked = 3

// Unknown are the halves whose client is to be looked up, as long as that may help.
func (t *Tracer) Unknown() []Answer {
	var list []Answer
	for _, a := range t.answers {
		if b := t.backs[a]; !b.resolved && b.asked < mostAsked {
			b.asked++
			list = append(list, a)
		}
	}
	return list
}

// Resolve tells the tracer which client began a connection, and which address it dialled.
func (t *Tracer) Resolve(a Answer, client, dialled netip.AddrPort) {
	if b := t.backs[a]; b != nil {
		b.resolved, b.client, b.dialled = true, client, dialled
	}
}

// Unchosen are the clients none of whose packets were seen on their way to an endpoint:
// those are not known, more than can be watched, or on this machine itself.
func (t *Tracer) Unchosen() []netip.AddrPort {
	chosen := map[netip.AddrPort]bool{}
	for _, a := range t.answers {
		if client, ok := t.clientOf(a, t.backs[a]); ok {
			chosen[client] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(t.order), func(c netip.AddrPort) bool { return chosen[c] })
}

// Choose tells the tracer which backend answers a client. One that is answered by the VIP itself was never sent
// to an endpoint.
func (t *Tracer) Choose(client netip.AddrPort, a Answer) {
	if a.Backend == t.target.VIP || t.fronts[client] == nil {
		return
	}
	if b := t.back(a); b != nil && !b.resolved {
		b.resolved, b.client, b.dialled = true, client, t.target.VIP
	}
}

// Left is how many packets belonged to connections beyond those that are followed.
func (t *Tracer) Left() int { return t.left }

// clientOf returns the client of a half; ok is false if its target is another address or is
// unknown.
func (t *Tracer) clientOf(a Answer, b *back) (client netip.AddrPort, ok bool) {
	if b.resolved {
		return b.client, b.dialled == t.target.VIP
	}
	if f := t.fronts[a.Peer]; f != nil && (!f.syn || !b.syn || f.seq == b.seq) {
		return a.Peer, true
	}
	if b.syn {
		for _, client := range t.order {
			if f := t.fronts[client]; f.syn && f.seq == b.seq {
				return client, true
			}
		}
	}
	return client, false
}
