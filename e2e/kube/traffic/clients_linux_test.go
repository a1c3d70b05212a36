package traffic

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

// The load of each kind of client: new connections a second, and some that stay open and send
// requests. Emulated, all kinds together are what the machine can carry beside two proxies.
const (
	newPerSecond = 5
	longEach     = 2
	longAsk      = 200 * time.Millisecond
)

// client is one kind of client and its target.
type client struct {
	name string
	run  *load.Run
	seen load.Report // when the phase began
}

// clients are kinds that ask at the same time, through the phases of a test.
type clients struct {
	all   []*client
	first uint16 // first of the source ports
	phase time.Time
}

// Source ports of new connections. IPVS identifies an answer only by the address and port of the
// client and of the backend. If the same port were used for two virtual servers that choose the
// same backend, the older connection would never see its answer. So each kind of clients has ports
// of its own, below those that kernels choose, and enough for the longest test. Later clients begin
// with other ports: an untranslated connection stays in connection tracking for up to two minutes,
// and one from the same port would not be translated either.
const (
	firstPort = 11000
	portsEach = 100 * newPerSecond
	portsAll  = 12 * portsEach // of all kinds
	portSets  = 3              // firstPort + portSets*portsAll is below what kernels choose
)

// newClients returns the nth clients of a test, without any kind.
func newClients(n int) *clients {
	return &clients{first: uint16(firstPort + n%portSets*portsAll)}
}

// add starts one kind, and returns when its long connections are open.
func (cs *clients) add(t *testing.T, from *space, what string, to netip.AddrPort) {
	t.Helper()
	first := cs.first + uint16(len(cs.all)*portsEach)
	c := &client{name: from.name + " to " + what}
	for c.run == nil || cs.shares(c) {
		run, err := load.Start(t.Context(), load.Profile{
			To: to, New: newPerSecond, Ports: load.Ports{First: first, Last: first + portsEach - 1},
			Long: longEach, Every: longAsk, Timeout: patience, Enter: from.do,
		})
		must(t, err)
		t.Cleanup(func() { _, _ = run.Stop() })
		c.run = run
		poll(t, "connections of "+c.name, settleTimeout, func() error {
			if r := run.Report(); r.OK == 0 || r.Long.Opened < longEach {
				return fmt.Errorf("%d answered, %d failed, %d long ones open: %s", r.OK, r.Failures(), r.Long.Opened, firsts(r)+cuts(r))
			}
			return nil
		})
	}
	cs.all = append(cs.all, c)
}

// shares reports whether a long connection uses a port of another kind; the kind then ends.
func (cs *clients) shares(c *client) bool {
	taken := map[netip.AddrPort]bool{}
	for _, other := range cs.all {
		for _, conn := range other.run.Report().Long.Conns {
			taken[conn.Client] = true
		}
	}
	shared := slices.ContainsFunc(c.run.Report().Long.Conns, func(conn load.Conn) bool { return taken[conn.Client] })
	if shared {
		_, _ = c.run.Stop()
	}
	return shared
}

// begin starts a phase.
func (cs *clients) begin() {
	cs.phase = time.Now()
	for _, c := range cs.all {
		c.seen = c.run.Report()
	}
}

// answers is how many more of each kind are waited for before a phase ends.
const answers = 15

// more waits until each kind has gone on for a while after now.
func (cs *clients) more(t *testing.T) {
	t.Helper()
	before := map[*client]load.Report{}
	for _, c := range cs.all {
		before[c] = c.run.Report()
	}
	for _, c := range cs.all {
		poll(t, c.name+" to go on", settleTimeout, func() error {
			if r := c.run.Report(); r.OK+r.Failures() < before[c].OK+before[c].Failures()+answers {
				return fmt.Errorf("%d answers", r.OK-before[c].OK)
			}
			return nil
		})
	}
}

// phaseResult is what became of the clients in a phase.
type phaseResult struct {
	ok, failed, cut int
	slowest         time.Duration
	took            time.Duration
	failures        []string
}

// end ends a phase some time after now, and prints what became of all kinds in it.
func (cs *clients) end(t *testing.T, phase string) phaseResult {
	t.Helper()
	cs.more(t)
	result := phaseResult{took: time.Since(cs.phase)}
	for _, c := range cs.all {
		result.add(c, c.run.Report())
	}
	figure(t, phase, fmt.Sprintf("%5d new connections, %d failed, slowest %s; %d of %d long ones cut; %s",
		result.ok+result.failed, result.failed, result.slowest.Round(time.Millisecond), result.cut, longEach*len(cs.all), result.took.Round(100*time.Millisecond)))
	return result
}

func (p *phaseResult) add(c *client, now load.Report) {
	p.ok += now.OK - c.seen.OK
	failed, cut := now.Failures()-c.seen.Failures(), now.Long.Cuts()-c.seen.Long.Cuts()
	p.failed += failed
	p.cut += cut
	for i := int(c.seen.Took.Seconds()); i < len(now.Series); i++ {
		p.slowest = max(p.slowest, now.Series[i].Worst)
	}
	if failed > 0 {
		p.failures = append(p.failures, fmt.Sprintf("%s: %d failed: %s", c.name, failed, firsts(now)))
	}
	if cut > 0 {
		p.failures = append(p.failures, fmt.Sprintf("%s: %d of %d long ones cut: %s", c.name, cut, longEach, cuts(now)))
	}
}

// firsts is an example of each kind of failure.
func firsts(r load.Report) string {
	var out []string
	for kind, n := range r.Failed {
		out = append(out, fmt.Sprintf("%d %s, the first at %s: %v", n, kind, r.First[kind].At.Format("15:04:05.000"), r.First[kind].Err))
	}
	return strings.Join(out, "; ")
}

func cuts(r load.Report) string {
	var out []string
	for _, c := range r.Long.Conns {
		if c.Failure != "" {
			out = append(out, fmt.Sprintf("%s on %s at %s: %v", c.Failure, cmp.Or(c.Backend, "no backend"), c.Cut.At.Format("15:04:05.000"), c.Cut.Err))
		}
	}
	return strings.Join(out, "; ")
}

// lossless ends a phase in which nothing may be lost.
func (cs *clients) lossless(t *testing.T, node *space, phase string) {
	t.Helper()
	if r := cs.end(t, phase); r.failed > 0 || r.cut > 0 {
		text := strings.Join(r.failures, "\n")
		t.Errorf("%s:\n%s\n%s", phase, text, node.traces(t, text))
	}
}

var sourcePort = regexp.MustCompile(`from \S+:(\d+) to `)

// traces is what the kernel has about the connections that a message names.
func (s *space) traces(t *testing.T, message string) string {
	t.Helper()
	var out strings.Builder
	for _, found := range sourcePort.FindAllStringSubmatch(message, -1) {
		port, err := strconv.Atoi(found[1])
		must(t, err)
		out.WriteString(s.shell(t, fmt.Sprintf(`conntrack -L 2>/dev/null | grep -w 'port=%d' || true
awk '$3 == "%04X" || $7 == "%04X"' /proc/net/ip_vs_conn`, port, port, port)))
	}
	return out.String()
}

// cut is how many long connections have ended.
func (cs *clients) cut() int {
	n := 0
	for _, c := range cs.all {
		n += c.run.Report().Long.Cuts()
	}
	return n
}

// stop ends all, and returns when each request has its outcome.
func (cs *clients) stop() {
	for _, c := range cs.all {
		_, _ = c.run.Stop()
	}
}
