package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/capture"
)

// The names of stations, in the order in which they are reached.
const (
	Arrived   = "arrived"   // at this machine, to the VIP
	Untouched = "untouched" // left again, still to the VIP: this node does not serve it
	Chosen    = "chosen"    // an endpoint
	Left      = "left"      // for the endpoint
	Answered  = "answered"  // by the endpoint
	Returned  = "returned"  // the answer left for the client, from the VIP
	Refused   = "refused"   // by a reset or a message of ICMP
)

// Station is one that a connection reached.
type Station struct {
	Name  string
	Links []string      // on which it was seen
	At    time.Duration // since the trace began
	Text  string        // for people
}

// Connection is the way of one.
type Connection struct {
	Client, Backend netip.AddrPort // Backend is not valid if none was chosen
	Stations        []Station
	// Why lists the likely reasons why it ended short of its client, most likely first; empty if
	// nothing did.
	Why []string
	// UnderWay: it came no further yet when the trace ended.
	UnderWay bool
}

// patience is how long what follows a station may take, before it is asked why it does not.
const patience = time.Second

// Report returns the path of each connection, in the order in which they were seen, up to the end
// of the trace.
func (t *Tracer) Report(end time.Duration) []Connection {
	halves := map[netip.AddrPort][]Answer{}
	clients := slices.Clone(t.order)
	for _, a := range t.answers {
		client, ok := t.clientOf(a, t.backs[a])
		if !ok || t.target.From.IsValid() && client.Addr() != t.target.From {
			continue
		}
		if !slices.Contains(clients, client) {
			clients = append(clients, client)
		}
		halves[client] = append(halves[client], a)
	}
	var all []Connection
	for _, client := range clients {
		c := t.connection(client, halves[client])
		if len(c.Why) > 0 && !c.refused() && end-c.last() < patience {
			c.Why, c.UnderWay = nil, true
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b Connection) int { return cmp.Compare(a.Stations[0].At, b.Stations[0].At) })
	return all
}

// last is when the last station was reached.
func (c *Connection) last() (at time.Duration) {
	for _, s := range c.Stations {
		at = max(at, s.At)
	}
	return at
}

func (c *Connection) refused() bool {
	return slices.ContainsFunc(c.Stations, func(s Station) bool { return s.Name == Refused })
}

// connection joins the halves. A client that uses its port again has several backends; the
// last one counts, and each is named.
func (t *Tracer) connection(client netip.AddrPort, halves []Answer) Connection {
	c := Connection{Client: client}
	f := t.fronts[client]
	if f != nil {
		c.arrive(client, f)
	}
	local := f == nil || !f.request.seen && !f.untouched.seen
	merged, order := t.merge(halves)
	for _, backend := range order {
		h := merged[backend]
		c.pass(Answer{backend, h.peer}, &h.back, client, local, t.target.VIP)
	}
	if f != nil {
		c.back(f, t.target.VIP, len(halves) > 0)
	}
	c.Why = t.why(c, local)
	return c
}

// half has the packets of one backend, with any source.
type half struct {
	back
	peer netip.AddrPort
}

// merge joins the halves with the same backend. If rules apply to bridged packets, the bridge sees
// an answer whose source is already restored, so it sees another peer than its port did.
func (t *Tracer) merge(halves []Answer) (merged map[netip.AddrPort]*half, order []netip.AddrPort) {
	merged = map[netip.AddrPort]*half{}
	for _, a := range halves {
		b := t.backs[a]
		h := merged[a.Backend]
		if h == nil {
			h = &half{peer: a.Peer}
			merged[a.Backend] = h
			order = append(order, a.Backend)
		}
		if b.request.seen && !h.request.seen {
			h.peer = a.Peer
		}
		h.request.merge(b.request)
		h.answer.merge(b.answer)
		for _, r := range b.refusals {
			keep(&h.refusals, r)
		}
	}
	return merged, order
}

// merge adds what was seen of the same direction.
func (s *sighting) merge(o sighting) {
	switch {
	case !o.seen:
		return
	case !s.seen:
		*s = o
		return
	case o.at < s.at:
		s.at, s.reset = o.at, o.reset
	}
	links := slices.Clone(s.links)
	for _, l := range o.links {
		if len(links) < mostLinks && !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	s.links = links
}

func (c *Connection) add(name string, s sighting, format string, args ...any) {
	c.Stations = append(c.Stations, Station{Name: name, Links: s.links, At: s.at, Text: fmt.Sprintf(format, args...)})
}

func (c *Connection) arrive(client netip.AddrPort, f *front) {
	if f.request.seen {
		c.add(Arrived, f.request, "%s from %s", on(f.request), client)
	}
	if f.untouched.seen {
		c.add(Untouched, f.untouched, "%s, still to the service address", on(f.untouched))
	}
}

// pass adds the stations of the half with a backend.
func (c *Connection) pass(a Answer, b *back, client netip.AddrPort, local bool, vip netip.AddrPort) {
	c.Backend = a.Backend
	begin := b.request
	if !begin.seen {
		begin = b.answer
	}
	if !begin.seen { // looked up, and not watched
		c.add(Chosen, sighting{at: c.Stations[0].At}, "%s, by connection tracking; its packets were not watched", a.Backend)
	} else if local {
		c.add(Chosen, sighting{at: begin.at}, "%s, dialled by this machine", a.Backend)
	} else {
		c.add(Chosen, sighting{at: begin.at}, "%s", a.Backend)
	}
	if b.request.seen {
		source := "with its source kept"
		if a.Peer != client {
			source = "with its source rewritten to " + a.Peer.String()
		}
		if local && a.Peer.Addr() == vip.Addr() {
			source = "with the service address as its source"
		}
		c.add(Left, b.request, "%s %s", on(b.request), source)
	}
	if b.answer.seen {
		how := ""
		if b.answer.reset {
			how = ", by a reset: no process listens there"
		}
		c.add(Answered, b.answer, "by %s %s%s", a.Backend, on(b.answer), how)
	}
	c.refuse(b.refusals)
}

// back adds the packets that went to the client.
func (c *Connection) back(f *front, vip netip.AddrPort, chosen bool) {
	switch {
	case f.answer.seen && f.answer.reset && !chosen:
		c.add(Refused, f.answer, "%s by a reset from %s", on(f.answer), vip)
	case f.answer.seen && !chosen:
		c.add(Returned, f.answer, "%s as %s; no endpoint was seen", on(f.answer), vip)
	case f.answer.seen:
		c.add(Returned, f.answer, "%s as %s", on(f.answer), vip)
	}
	c.refuse(f.refusals)
}

// refuse names one message of each kind.
func (c *Connection) refuse(list []refusal) {
	for i, r := range list {
		if slices.IndexFunc(list, func(o refusal) bool { return o.text == r.text && o.by == r.by }) == i {
			s := sighting{at: r.at, links: []string{r.link}}
			c.add(Refused, s, "%s by %s: %s", on(s), r.by, r.text)
		}
	}
}

// on names the links of a sighting.
func on(s sighting) string {
	if len(s.links) == 0 {
		return "on an unknown link"
	}
	return "on " + strings.Join(s.links, ", ")
}

// why returns the likely reasons why a connection did not get back to its client.
func (t *Tracer) why(c Connection, local bool) []string {
	has := func(name string) bool {
		return slices.ContainsFunc(c.Stations, func(s Station) bool { return s.Name == name })
	}
	switch {
	case has(Refused) && t.target.Serving == 0:
		return []string{"no endpoint takes new connections"}
	case has(Refused), has(Returned), local && has(Answered):
		return nil
	case has(Answered):
		return []string{
			"the answer was dropped on its way back: the policy of FORWARD, or a rule there",
			"pods on one bridge whose packets pass by the rules (net.bridge.bridge-nf-call-iptables=0)",
			"connection tracking lost the flow (net.ipv4.vs.conntrack=0, or its table is full)",
		}
	case has(Left), has(Chosen):
		return []string{
			"the endpoint does not answer: it does not listen, or a NetworkPolicy drops the packet",
			"the path there or back is broken: route, tunnel, MTU, reverse path filter of its node",
		}
	case has(Untouched):
		return []string{"this node does not serve the address: no virtual server, and it is not local"}
	case t.target.Serving == 0:
		return []string{"no endpoint takes new connections"}
	}
	why := []string{
		"a rule dropped it: source ranges, a Local policy without an endpoint here, a NetworkPolicy",
		"the reverse path filter dropped it, because the route back to the client uses another link",
	}
	if t.target.Protocol == capture.TCP {
		why = append(why, "the scheduler had no endpoint for it (limits reached, all at weight 0)")
	}
	return why
}
