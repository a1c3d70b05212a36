package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack/conntracktest"
)

// Sizes of the test of UDP.
const (
	foreignFlows = 1_000_000 // of others, in the node's table
	talkRate     = 1000      // datagrams a second of one client, if the machine can
	moreServices = 20        // of UDP besides, each with a port of its own
	udpPort      = 53
	udpNodePort  = 30053
)

// conversation is a UDP Service with one backend, and clients that talk to it all the time, each from one socket.
type conversation struct {
	*proxy
	w        *world
	service  service
	table    *conntracktest.Kernel
	watch    *watch    // nil in iptables mode, which has no destinations to look at
	written  time.Time // when the agent had written the latest change
	talkers  []*talker
	resident int           // KiB of the agent when it began
	look     time.Duration // the time in which the kernel reads through its table once
}

// TestUDPGoesWhereItsBackendIs: a client sends without a pause and from one port. Within a second
// the current backend answers it, although the kernel has a flow to the earlier one.
func TestUDPGoesWhereItsBackendIs(t *testing.T) {
	c := newConversation(t)
	c.begin(t)
	c.changes(t)
}

// TestUDPBesideAMillionFlows: nothing else in a table with a million flows is touched, and the agent does not grow with it.
func TestUDPBesideAMillionFlows(t *testing.T) {
	if os.Getenv("KUBE_IPVS_E2E_MILLION") == "" {
		t.Skip("takes seven minutes where it is emulated: make stress WHAT=million runs it")
	}
	c := newConversation(t)
	c.fill(t)
	c.begin(t)
	c.changes(t)
	c.untouched(t)
	t.Run("replaced while no agent ran", func(t *testing.T) { c.restart(t, c.w.pod1, c.w.pod2) })
	c.untouched(t)
}

func newConversation(t *testing.T) *conversation {
	t.Helper()
	return newWorld(t).conversation(t)
}

// conversation is one in whatever mode the agent runs.
func (w *world) conversation(t *testing.T, flags ...string) *conversation {
	t.Helper()
	c := &conversation{
		w: w, proxy: newAgent(t, w.node, append([]string{"--cluster-cidr", clusters}, flags...)...),
		service: service{name: "dns", vip: pair{"10.96.0.90", "fd00:96::90"}, ports: []port{{"dns", "UDP", udpPort, 8080}}, nodePort: udpNodePort},
	}
	w.pod1.echo(t)
	w.pod2.echo(t)
	c.must(t, c.do(func() (err error) { c.table, err = conntracktest.Open(); return err }))
	t.Cleanup(c.table.Close)
	return c
}

// begin starts the agent and the clients.
func (c *conversation) begin(t *testing.T) {
	t.Helper()
	c.service.backends = endpoints(c.w.pod1)
	c.write(t, c.service)
	for i := range moreServices {
		c.write(t, service{
			name: fmt.Sprintf("more-%d", i), vip: pair{v4: fmt.Sprintf("10.96.1.%d", i+1)},
			ports: []port{{"udp", "UDP", 1000 + i, 8080}}, backends: endpoints(c.w.pod1)[:1],
		})
	}
	c.start(t)
	if c.mode(t) == "ipvs" {
		c.watch = c.w.node.watch(t)
	}
	c.talk(t)
	c.measure(t)
	c.resident = c.memory(t, "VmRSS")
	c.must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.process.Process.Pid), []byte("5"), 0)) // a new peak
}

// changes are those that a Service over UDP sees.
func (c *conversation) changes(t *testing.T) {
	pod1, pod2 := c.w.pod1, c.w.pod2
	t.Run("replaced", func(t *testing.T) { c.replace(t, pod1, pod2) })
	t.Run("none and one again", func(t *testing.T) {
		c.noBackend(t, pod2)
		c.replace(t, pod2, pod1)
	})
	t.Run("none and another at once", func(t *testing.T) {
		c.change(t)
		c.replace(t, pod1, pod2)
	})
	t.Run("deleted and made again", func(t *testing.T) { c.deleted(t, pod2, pod1) })
	t.Run("back after late answers", func(t *testing.T) {
		c.noBackend(t, pod1)
		c.late(t, pod2)
		c.replace(t, pod1, pod2)
	})
}

// late has answers of a pod come after the kernel has deleted the flow that they belong to.
func (c *conversation) late(t *testing.T, p *pod) {
	t.Helper()
	for _, k := range c.talkers {
		backend, client := netip.MustParseAddrPort(hostPort(p.addr.of(k.family()), 8080)), k.local(t)
		err := c.table.Add(conntracktest.To(conntrack.Key{Addr: client.Addr(), Port: client.Port(), Protocol: conntrack.ProtocolUDP}, backend, client))
		if err != nil && !errors.Is(err, unix.EEXIST) { // it may have happened by itself
			t.Fatalf("%s: %v", k.name, err)
		}
	}
}

// talk starts the clients: a pod by both families, and a machine outside by a node port, where the node puts its own address.
func (c *conversation) talk(t *testing.T) {
	t.Helper()
	outside := hostPort(extAddr.v4, udpNodePort)
	for rate := talkRate; ; rate /= 2 {
		c.talkers = []*talker{
			c.w.pod3.talk(t, hostPort(c.service.vip.v4, udpPort), rate),
			c.w.pod3.talk(t, hostPort(c.service.vip.v6, udpPort), rate/10),
			c.w.outside.talk(t, outside, rate),
		}
		if carried := c.carried(t); carried > 0.95 || rate < talkRate/4 {
			t.Logf("figure: %d datagrams a second from each client of IPv4, %.1f%% answered", rate, 100*carried)
			break
		}
		t.Logf("figure: this machine does not carry %d datagrams a second from each client", rate)
		for _, k := range c.talkers {
			k.end()
		}
	}
	flows, err := c.table.AnsweredBy(netip.MustParseAddr(c.w.pod1.addr.v4))
	c.must(t, err)
	masqueraded := 0
	for _, f := range flows {
		if f.Dialled.String() == outside && f.Towards.Addr() != f.Client.Addr() {
			masqueraded++
		}
	}
	if masqueraded == 0 {
		t.Errorf("no flow by the node port is masqueraded: %v", flows)
	}
}

// carried is the least part of a client's datagrams that is answered while nothing changes, less if it cannot send as many as it
// wants to.
func (c *conversation) carried(t *testing.T) float64 {
	t.Helper()
	least := 1.0
	for _, k := range c.talkers {
		k.await(t, c.w.pod1.name, k.rate/10)
		start := time.Now()
		sent, answered := k.count()
		poll(t, k.name+" to send for two seconds", settleTimeout, func() error {
			if now, _ := k.count(); now < sent+2*k.rate {
				return fmt.Errorf("%d datagrams", now-sent)
			}
			return nil
		})
		sentNow, answeredNow := k.count()
		wanted := max(float64(sentNow-sent), time.Since(start).Seconds()*float64(k.rate))
		least = min(least, float64(answeredNow-answered)/wanted)
	}
	return least
}

// change gives the Service other backends, and waits until that is in the kernel.
func (c *conversation) change(t *testing.T, to ...*pod) {
	t.Helper()
	c.service.backends = endpoints(to...)
	c.edit(t, func() { c.write(t, c.service) })
	c.written = time.Now()
}

// replace gives the Service another backend than the one before, and wants it to answer soon.
func (c *conversation) replace(t *testing.T, old, fresh *pod) {
	t.Helper()
	start := time.Now()
	c.change(t, fresh)
	c.answered(t, start, old, fresh)
}

// blackhole is how long datagrams go unanswered where a stale flow is left: the kernel drops it after 30 s without an answer
// (nf_conntrack_udp_timeout). A third of that tells a flow that is left from a machine that is slow.
const blackhole = 10

// answered requires that the new backend answers every client, without a gap of unanswered
// datagrams as long as blackhole. The kernel must have dropped the flows to the old backend. The
// figures tell how long it took.
func (c *conversation) answered(t *testing.T, start time.Time, old, fresh *pod) {
	t.Helper()
	for _, k := range c.talkers {
		k.await(t, fresh.name, 2*k.rate)
		began := c.written
		if c.watch != nil {
			began = c.watch.since(t, c.serving(k, fresh), start)
		}
		run, gap := k.longest(began, fresh.name)
		t.Logf("figure: %s: %s in the kernel after %s, the longest wait from then on %d datagrams, %s", k.name, fresh.name,
			began.Sub(start).Round(time.Millisecond), run, gap.Round(time.Millisecond))
		if run > blackhole*k.rate {
			t.Errorf("%s: %d datagrams in a row had no answer, which is more than the %d of %d seconds", k.name, run, blackhole*k.rate, blackhole)
		}
	}
	c.forgotten(t, old)
}

// serving is the destination that a client's datagrams go to.
func (c *conversation) serving(k *talker, p *pod) serving {
	return serving{"UDP", k.to, netip.MustParseAddrPort(hostPort(p.addr.of(k.family()), 8080))}
}

// since is when a destination came that came after a moment.
func (w *watch) since(t *testing.T, key serving, start time.Time) time.Time {
	t.Helper()
	for _, turn := range w.turns(key) {
		if turn.at.After(start) && turn.now == "1" {
			return turn.at
		}
	}
	t.Fatalf("%v: weights %s, want a 1 after the change", key, w.weights(key))
	return start
}

// noBackend removes the backend; the kernel then drops its flows.
func (c *conversation) noBackend(t *testing.T, old *pod) {
	t.Helper()
	c.change(t)
	c.forgotten(t, old)
}

// deleted deletes the Service until the clients have untranslated flows to its address, and creates
// it again.
func (c *conversation) deleted(t *testing.T, old, fresh *pod) {
	t.Helper()
	c.edit(t, func() { c.remove(t, c.service) })
	c.forgotten(t, old)
	outside := c.talkers[2]
	poll(t, "a flow that was never rewritten", settleTimeout, func() error {
		flows, err := c.table.AnsweredBy(outside.to.Addr())
		if err == nil && len(flows) == 0 {
			err = fmt.Errorf("no flow is answered by %s", outside.to)
		}
		return err
	})
	flows, err := c.table.AnsweredBy(netip.MustParseAddr(c.service.vip.v4))
	c.must(t, err)
	t.Logf("figure: %d flows to the cluster address were never rewritten", len(flows))
	c.replace(t, old, fresh)
}

// restart changes the backend while no agent runs: the next one looks through all flows for all Services.
func (c *conversation) restart(t *testing.T, old, fresh *pod) {
	t.Helper()
	if _, err := c.stop(t); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	c.service.backends = endpoints(fresh)
	c.write(t, c.service)
	start := time.Now()
	c.start(t)
	c.resident = c.memory(t, "VmRSS")
	for _, k := range c.talkers {
		k.await(t, fresh.name, 1)
		t.Logf("figure: %s: answered by %s %s after the start", k.name, fresh.name, k.first(start, fresh.name).Sub(start).Round(time.Millisecond))
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		poll(t, "a sweep of "+family+" to end", settleTimeout, func() error {
			if c.metric(t, sweepTime+`_count{ip_family="`+family+`"}`) == 0 {
				time.Sleep(time.Second) // more often would take the processor from it
				return fmt.Errorf("none has ended")
			}
			return nil
		})
		t.Logf("figure: the first sweep of %s for all Services: %.1f s", family, c.metric(t, sweepTime+`_sum{ip_family="`+family+`"}`))
	}
	c.forgotten(t, old)
}
