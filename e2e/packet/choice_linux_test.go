package packet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// This file models where the kernel sends the next connection, by the counts that it keeps of each destination, as
// net/netfilter/ipvs of Linux 6.1 computes it. Each rule is named with its source file there.

// counted is a destination as the kernel counts it. A TCP connection is active from its first packet to its first FIN or RST, and
// inactive from then on until it is dropped (ip_vs_bind_dest in ip_vs_conn.c, set_tcp_state in ip_vs_proto_tcp.c).
type counted struct {
	name                     string
	weight, active, inactive int
}

// rule chooses one of the destinations, which are in the kernel's order; nil for none.
type rule func(list []*counted) *counted

// rules makes the rule of each scheduler that goes by counts or weights. Some keep what they chose.
var rules = map[string]func() rule{
	"lc":    func() rule { return unweighted },
	"wlc":   func() rule { return lightest },
	"sed":   func() rule { return soonest },
	"nq":    func() rule { return idlest },
	"fo":    func() rule { return highest },
	"ovf":   func() rule { return overflow },
	"lblc":  locality,
	"lblcr": replication,
}

// overhead weighs a destination's connections: ip_vs_dest_conn_overhead in include/net/ip_vs.h.
func overhead(d *counted) int { return d.active*256 + d.inactive }

// least has the smallest cost in proportion to its weight; of equal ones it is the first.
func least(list []*counted, cost func(*counted) int) *counted {
	var best *counted
	for _, d := range list {
		if d.weight > 0 && (best == nil || cost(best)*d.weight > cost(d)*best.weight) {
			best = d
		}
	}
	return best
}

// lightest: ip_vs_wlc.c.
func lightest(list []*counted) *counted { return least(list, overhead) }

// soonest: ip_vs_sed.c. It looks at active connections only, and counts the one to come.
func soonest(list []*counted) *counted {
	return least(list, func(d *counted) int { return d.active + 1 })
}

// idlest: ip_vs_nq.c. The first without an active connection, whatever its weight, or else as sed.
func idlest(list []*counted) *counted {
	for _, d := range list {
		if d.weight > 0 && d.active == 0 {
			return d
		}
	}
	return soonest(list)
}

// unweighted: ip_vs_lc.c. Weights above 0 are all the same.
func unweighted(list []*counted) *counted {
	var best *counted
	for _, d := range list {
		if d.weight > 0 && (best == nil || overhead(best) > overhead(d)) {
			best = d
		}
	}
	return best
}

// highest: ip_vs_fo.c.
func highest(list []*counted) *counted {
	var best *counted
	for _, d := range list {
		if d.weight > 0 && (best == nil || d.weight > best.weight) {
			best = d
		}
	}
	return best
}

// overflow: ip_vs_ovf.c. A destination with as many active connections as its weight gets one more;
// only one with more is skipped.
func overflow(list []*counted) *counted {
	return highest(slices.DeleteFunc(slices.Clone(list), func(d *counted) bool { return d.active > d.weight }))
}

// overloaded: is_overloaded in ip_vs_lblc.c and ip_vs_lblcr.c. Only as long as another one is less than half full.
func overloaded(d *counted, list []*counted) bool {
	return d.active > d.weight && slices.ContainsFunc(list, func(o *counted) bool { return 2*o.active < o.weight })
}

// locality: ip_vs_lblc.c, for one address. One destination until it is overloaded, then the lightest.
func locality() rule {
	var cached *counted
	return func(list []*counted) *counted {
		if cached == nil || cached.weight == 0 || overloaded(cached, list) {
			cached = lightest(list)
		}
		return cached
	}
}

// replication: ip_vs_lblcr.c, for one address. The lightest of a set, to which the lightest of all is added in front when that is
// overloaded. A day has to go by before one leaves the set (lblcr_expiration).
func replication() rule {
	var set []*counted
	return func(list []*counted) *counted {
		if d := lightest(set); d != nil && !overloaded(d, list) {
			return d
		}
		d := lightest(list)
		if d != nil && !slices.Contains(set, d) {
			set = slices.Insert(set, 0, d)
		}
		return d
	}
}

// counted reads the destinations of a Service's port 80 over TCP in the kernel's order: the one that came last is the first.
func (l *lab) counted(t *testing.T, s service) []*counted {
	t.Helper()
	var found []*ipvs.Destination
	l.must(t, l.do(func() error {
		handle, err := ipvs.New("")
		if err != nil {
			return err
		}
		defer handle.Close()
		found, err = handle.GetDestinations(&ipvs.Service{
			AddressFamily: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Address: net.ParseIP(s.vip.v4), Port: 80,
		})
		return err
	}))
	var out []*counted
	for _, d := range found {
		i := slices.IndexFunc(l.workers, func(k *worker) bool { return k.addr == d.Address.String() })
		if i < 0 {
			t.Fatalf("%s has a destination %s that is no worker", s.name, d.Address)
		}
		out = append(out, &counted{l.workers[i].name, d.Weight, d.ActiveConnections, d.InactiveConnections})
	}
	return out
}

// keeper holds connections to a Service, and compares each with the prediction of a rule.
type keeper struct {
	*lab
	t       *testing.T
	service *service
	rule    rule
	list    []*counted
	open    map[string][]*backend.Conn

	want, got []string // how many each worker was to get and got, a text for each time of holding
}

func (l *lab) keeper(t *testing.T, s *service) *keeper {
	t.Helper()
	k := &keeper{lab: l, t: t, service: s, list: l.counted(t, *s), open: map[string][]*backend.Conn{}}
	if rule, ok := rules[s.annotations["scheduler"]]; ok {
		k.rule = rule()
	}
	t.Cleanup(func() {
		for _, conns := range k.open {
			for _, c := range conns {
				c.Close()
			}
		}
	})
	return k
}

// hold opens connections one after the other.
func (k *keeper) hold(n int) {
	k.t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for i := range n {
		expected := k.rule(k.list)
		if expected == nil {
			k.t.Fatalf("connection %d: the rule has no destination for it: %s", i, k)
		}
		name := k.dial()
		if want[expected.name]++; name != expected.name {
			k.t.Errorf("%s: connection %d went to %s, want %s: %s", k.service.name, i, name, expected.name, k)
		}
		got[name]++
		k.of(name).active++
	}
	k.want, k.got = append(k.want, k.inOrder(want)), append(k.got, k.inOrder(got))
}

// dial opens one and tells who answers it.
func (k *keeper) dial() string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	client := k.w.pod3
	var name string
	err := client.do(func() error {
		conn, err := backend.Dial(ctx, backend.TCP, netip.MustParseAddrPort(hostPort(k.service.vip.v4, 80)), client.source(k.service.vip.v4))
		if err != nil {
			return err
		}
		reply, err := conn.Ask(ctx)
		name = reply.Name
		k.open[name] = append(k.open[name], conn)
		return err
	})
	if err != nil {
		k.t.Fatalf("%s: hold a connection: %v: %s", k.service.name, err, k)
	}
	return name
}

// end closes the connections of one, and waits until the kernel counts them as inactive.
func (k *keeper) end(name string) {
	k.t.Helper()
	closed := len(k.open[name])
	for _, c := range k.open[name] {
		c.Close()
	}
	delete(k.open, name)
	k.until(func(d *counted) bool { return d.name != name || d.active == 0 && d.inactive == closed })
}

// weigh gives the workers other weights.
func (k *keeper) weigh(weights ...string) {
	k.t.Helper()
	for i, weight := range weights {
		k.service.backends[i].weight = weight
	}
	k.edit(k.t, func() { k.write(k.t, *k.service) })
	k.until(func(d *counted) bool {
		i := slices.IndexFunc(k.workers, func(w *worker) bool { return w.name == d.name })
		return fmt.Sprint(d.weight) == weights[i]
	})
}

// until waits until the kernel's counts are as they have to be, and goes on from them.
func (k *keeper) until(ok func(*counted) bool) {
	k.t.Helper()
	poll(k.t, "the kernel to count", settleTimeout, func() error {
		for _, is := range k.counted(k.t, *k.service) {
			if !ok(is) {
				return fmt.Errorf("%+v", *is)
			}
			*k.of(is.name) = *is // in place: a rule may point to it
		}
		return nil
	})
}

func (k *keeper) of(name string) *counted {
	for _, d := range k.list {
		if d.name == name {
			return d
		}
	}
	k.t.Fatalf("%q answered: %s", name, k)
	return nil
}

// String is for messages.
func (k *keeper) String() string {
	var out []string
	for _, d := range k.list {
		out = append(out, fmt.Sprintf("%+v", *d))
	}
	return strings.Join(out, " ")
}

// result is for the table.
func (k *keeper) result() (want, got string) {
	return strings.Join(k.want, ", then "), strings.Join(k.got, ", then ")
}

// inOrder prints counts in the order of the workers.
func (l *lab) inOrder(counts map[string]int) string {
	var out []string
	for _, w := range l.workers {
		out = append(out, fmt.Sprint(counts[w.name]))
	}
	return strings.Join(out, "+")
}
