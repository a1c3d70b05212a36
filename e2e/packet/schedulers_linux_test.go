package packet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/ipvs"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// lab is a node with a Service for each trial, all with the same backends.
type lab struct {
	*proxy
	w       *world
	workers []*worker
	sinks   []*sink
	clients []netip.Addr
}

// trial is a Service under one scheduler, and what is done to see how it distributes.
type trial struct {
	scheduler, flags string
	weights          []string // weights of the backends, each in its slice
	did              string
	run              func(*lab, *testing.T, *service) (want, got string)
}

// Sizes of the trials.
const (
	turns      = 90
	scattered  = 10_000
	manyClient = 60
	ofOne      = 24 // connections of one client
	ofTwo      = 70 // connections held under the power of two choices
)

func trials() []trial {
	even, falling := []string{"1", "1", "1"}, []string{"4", "2", "1"}
	const held = "4 held, those of the first end, 6 and then 10 more held, weights 4 2 1"
	return []trial{
		{"rr", "", falling, fmt.Sprintf("%d connections, weights 4 2 1", turns), (*lab).inTurn},
		{"wrr", "", []string{"3", "1"}, fmt.Sprintf("%d datagrams, each from a port of its own, weights 3 1", scattered), (*lab).byWeight},
		{"lc", "", falling, held, (*lab).byCounts},
		{"wlc", "", falling, held, (*lab).byCounts},
		{"sed", "", falling, held, (*lab).byCounts},
		{"nq", "", falling, held, (*lab).byCounts},
		{"lblc", "", []string{"4", "4", "4"}, "18 held at one address, weights 4 4 4", (*lab).untilFull},
		{"lblcr", "", []string{"4", "4", "4"}, "18 held at one address, weights 4 4 4", (*lab).untilFull},
		{"dh", "", even, fmt.Sprintf("%d clients at each of three addresses", ofOne), (*lab).byAddress},
		{"sh", "", even, fmt.Sprintf("%d of one client; %d clients, twice", ofOne, manyClient), (*lab).byClient},
		{"sh", "sh-port", even, fmt.Sprintf("%d of one client", ofOne), (*lab).byPort},
		{"mh", "mh-fallback", even, fmt.Sprintf("%d of one client; %d clients, twice; then the last backend goes", ofOne, manyClient), (*lab).byClientAndLess},
		{"mh", "", even, fmt.Sprintf("%d of one client", ofOne), (*lab).byPort},
		{"fo", "", []string{"3", "2", "1"}, "6 held, the first gets weight 0, 6 more held, weights 3 2 1", (*lab).failOver},
		{"ovf", "", falling, "10 held, weights 4 2 1", (*lab).fill},
		{"twos", "", falling, fmt.Sprintf("%d held, weights 4 2 1", ofTwo), (*lab).byTwoChoices},
	}
}

// TestSchedulersDistribute: each scheduler that an annotation asks for sends connections as the kernel's source does.
func TestSchedulersDistribute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := &lab{w: w, proxy: newAgent(t, w.node, "--cluster-cidr", clusters), workers: w.workers(t, 0, 3), sinks: w.sinks(t, 2), clients: w.pod3.clients(t, 30, manyClient)}
	all := trials()
	services := make([]*service, len(all))
	seen := map[string]bool{}
	for i, tt := range all {
		services[i] = l.service(i, tt)
		l.write(t, *services[i])
		seen[tt.scheduler] = true
	}
	for _, name := range scheduler.Names() {
		if !seen[name] {
			t.Errorf("no test tries %s", name)
		}
	}
	l.start(t)
	if w.lacks("nobodys") == nil {
		t.Error("a scheduler that does not exist is reported as present")
	}
	have := l.schedulers(t)
	table := newTable("scheduler", "flags", "done", "expected", "got", "took", "")
	for i, tt := range all {
		t.Run(strings.TrimSuffix(tt.scheduler+" "+tt.flags, " "), func(t *testing.T) {
			start := time.Now()
			if is := have[services[i].vip.v4]; is != tt.scheduler {
				err := w.lacks(tt.scheduler)
				if err == nil {
					t.Fatalf("the server is under %q, and this kernel has %s", is, tt.scheduler)
				}
				table.row(tt.scheduler, tt.flags, tt.did, "", "", "", "skipped")
				t.Skipf("this kernel has no %s: %v", tt.scheduler, err)
			}
			want, got := tt.run(l, t, services[i])
			verdict := "ok"
			if t.Failed() {
				verdict = "NOT OK"
			}
			table.row(tt.scheduler, tt.flags, tt.did, want, got, time.Since(start).Round(100*time.Millisecond), verdict)
		})
	}
	t.Logf("connections by backend\n%s", table)
}

// service returns the Service of a trial. A backend that leaves is cut, because its connections would keep it
// for minutes.
func (l *lab) service(i int, tt trial) *service {
	s := &service{
		name: fmt.Sprintf("trial-%d", i), vip: pair{v4: fmt.Sprintf("10.96.1.%d", i+1)}, ports: webPorts()[:1],
		annotations: annotations{"scheduler": tt.scheduler, "drain": "0s"},
	}
	if tt.flags != "" {
		s.annotations["scheduler-flags"] = tt.flags
	}
	if tt.scheduler == "dh" {
		s.external, s.lb = pair{v4: "198.18.7.1"}, pair{v4: "198.18.7.2"}
	}
	for b, weight := range tt.weights {
		e := l.workers[b].endpoint
		if tt.scheduler == "wrr" {
			s.ports, e = sinkPorts(), l.sinks[b].endpoint
		}
		e.weight = weight
		s.backends = append(s.backends, e)
	}
	return s
}

// schedulers are those of the node's servers, by address.
func (l *lab) schedulers(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	l.must(t, l.do(func() error {
		handle, err := ipvs.New("")
		if err != nil {
			return err
		}
		defer handle.Close()
		servers, err := handle.GetServices()
		for _, s := range servers {
			out[s.Address.String()] = s.SchedName
		}
		return err
	}))
	return out
}

// lacks asks the kernel with its own tool, and an unused address, why it lacks a scheduler; nil if
// it has it.
func (w *world) lacks(name string) error {
	_, err := w.outside.try("ipvsadm", "-A", "-t", "192.0.2.77:9", "-s", name)
	if err == nil {
		_, err = w.outside.try("ipvsadm", "-D", "-t", "192.0.2.77:9")
	}
	return err
}

// answers are who answers one connection from each of some addresses, one after the other.
func (l *lab) answers(t *testing.T, at string, from ...netip.Addr) []string {
	t.Helper()
	var out []string
	err := l.w.pod3.do(func() error {
		for _, source := range from {
			reply, err := once(patience, backend.TCP, netip.MustParseAddrPort(hostPort(at, 80)), source)
			if err != nil {
				return err
			}
			out = append(out, reply.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("connection %d of %d to %s: %v", len(out)+1, len(from), at, err)
	}
	return out
}

// tally counts each.
func tally(names []string) map[string]int {
	out := map[string]int{}
	for _, name := range names {
		out[name]++
	}
	return out
}

// inTurn: ip_vs_rr.c goes round, whatever the weights.
func (l *lab) inTurn(t *testing.T, s *service) (want, got string) {
	each := tally(l.answers(t, s.vip.v4, slices.Repeat(l.clients[:1], turns)...))
	share := turns / len(l.workers)
	for _, k := range l.workers {
		if n := each[k.name]; n < share-1 || n > share+1 {
			t.Errorf("%s got %d connections, want %d", k.name, n, share)
		}
	}
	return fmt.Sprintf("%d each, ±1", share), l.inOrder(each)
}

// byWeight: ip_vs_wrr.c, in proportion to the weights, here those of slices.
func (l *lab) byWeight(t *testing.T, s *service) (want, got string) {
	l.w.pod3.scatter(t, netip.MustParseAddrPort(hostPort(s.vip.v4, 80)), scattered)
	each, total := arrived(t, l.sinks, scattered)
	share := float64(each[0]) / float64(total)
	if share < 0.75*0.97 || share > 0.75*1.03 {
		t.Errorf("of %d datagrams %v came to backends of weight 3 and 1", total, each)
	}
	return "75.0%, ±3%", fmt.Sprintf("%d+%d, %.2f%%", each[0], each[1], 100*share)
}

// byCounts holds connections, has those of the heaviest end, which lc and wlc still count a little and sed and nq not at all, and
// holds more. With so few each of the four does something else.
func (l *lab) byCounts(t *testing.T, s *service) (want, got string) {
	k := l.keeper(t, s)
	k.hold(4)
	k.end(l.workers[0].name)
	k.hold(6)
	k.hold(10)
	return k.result()
}

// untilFull: each destination in turn gets one connection more than its weight, until none is less
// than half full. After that lblc stays with the last one, and lblcr uses the ones that it then has
// in turn.
func (l *lab) untilFull(t *testing.T, s *service) (want, got string) {
	k := l.keeper(t, s)
	k.hold(18)
	return k.result()
}

// fill: one after the other gets one more than its weight, the heaviest first.
func (l *lab) fill(t *testing.T, s *service) (want, got string) {
	k := l.keeper(t, s)
	k.hold(10)
	return k.result()
}

func (l *lab) failOver(t *testing.T, s *service) (want, got string) {
	k := l.keeper(t, s)
	k.hold(6)
	k.weigh("0", "2", "1")
	k.hold(6)
	return k.result()
}

// byTwoChoices: ip_vs_twos.c draws two destinations by their weights, and takes the one with fewer
// connections for its weight. No one knows which, but the counts stay close to the weights.
func (l *lab) byTwoChoices(t *testing.T, s *service) (want, got string) {
	k := l.keeper(t, s)
	each := map[string]int{}
	for range ofTwo {
		each[k.dial()]++
	}
	for i, share := range []int{4, 2, 1} {
		expected := ofTwo * share / 7
		if n := each[l.workers[i].name]; n < expected-ofTwo/7 || n > expected+ofTwo/7 {
			t.Errorf("%s got %d connections, want %d ±%d", l.workers[i].name, n, expected, ofTwo/7)
		}
	}
	return fmt.Sprintf("%d+%d+%d, ±%d", ofTwo*4/7, ofTwo*2/7, ofTwo/7, ofTwo/7), l.inOrder(each)
}

// byAddress: ip_vs_dh.c goes by the address of the frontend, so that all who dial one have one backend.
func (l *lab) byAddress(t *testing.T, s *service) (want, got string) {
	var each []string
	seen := map[string]bool{}
	for _, at := range []string{s.vip.v4, s.external.v4, s.lb.v4} {
		by := tally(l.answers(t, at, l.clients[:ofOne]...))
		if len(by) != 1 {
			t.Errorf("%s is answered by %v, want one", at, by)
		}
		maps.Copy(seen, map[string]bool{l.inOrder(by): true})
		each = append(each, l.inOrder(by))
	}
	if len(seen) < 2 {
		t.Errorf("all three addresses have one backend: %v", each)
	}
	return "one backend for each, not one for all", strings.Join(each, ", ")
}

// byClient: ip_vs_sh.c, and ip_vs_mh.c without a flag for ports, go by the address of the client.
func (l *lab) byClient(t *testing.T, s *service) (want, got string) {
	one := tally(l.answers(t, s.vip.v4, slices.Repeat(l.clients[:1], ofOne)...))
	if len(one) != 1 {
		t.Errorf("one client is answered by %v", one)
	}
	first, again := l.answers(t, s.vip.v4, l.clients...), l.answers(t, s.vip.v4, l.clients...)
	if len(tally(first)) != len(l.workers) {
		t.Errorf("%d clients are answered by %v, want all", len(first), tally(first))
	}
	moved := apart(first, again)
	if moved > 0 {
		t.Errorf("%d of %d clients have another backend the second time", moved, len(first))
	}
	return fmt.Sprintf("one backend; all %d, 0 move", len(l.workers)), fmt.Sprintf("%s; %s, %d move", l.inOrder(one), l.inOrder(tally(first)), moved)
}

// apart counts where two lists differ.
func apart(a, b []string) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// byPort: with the flag for ports each connection of a client is another client.
func (l *lab) byPort(t *testing.T, s *service) (want, got string) {
	one := tally(l.answers(t, s.vip.v4, slices.Repeat(l.clients[:1], ofOne)...))
	if len(one) < 2 {
		t.Errorf("%d connections of one client are all answered by %v", ofOne, one)
	}
	return "more than one backend", l.inOrder(one)
}

// byClientAndLess: when a backend leaves the table of ip_vs_mh.c, its clients are spread over the
// others, and few other clients move. The others take the places of the one that left, and rarely
// those of another.
func (l *lab) byClientAndLess(t *testing.T, s *service) (want, got string) {
	want, got = l.byClient(t, s)
	before := l.answers(t, s.vip.v4, l.clients...)
	last := l.workers[len(l.workers)-1]
	s.backends = without(s.backends, last.endpoint)
	l.edit(t, func() { l.write(t, *s) })
	poll(t, "the backend to be gone", settleTimeout, func() error {
		if list := l.counted(t, *s); len(list) != len(s.backends) {
			return fmt.Errorf("%d destinations", len(list))
		}
		return nil
	})
	after := l.answers(t, s.vip.v4, l.clients...)
	moved, stayers := 0, 0
	for i := range before {
		if before[i] != last.name {
			stayers++
			if after[i] != before[i] {
				moved++
			}
		}
	}
	if tally(after)[last.name] > 0 || moved > stayers/4 {
		t.Errorf("%d of %d clients of other backends moved when %s went: from %v to %v", moved, stayers, last.name, tally(before), tally(after))
	}
	return want + fmt.Sprintf("; at most %d of %d others move", stayers/4, stayers), got + fmt.Sprintf("; %s, %d move", l.inOrder(tally(after)), moved)
}

// Sizes of the change of schedulers.
const (
	openThrough = 1000
	newThrough  = 40.0        // new connections a second
	longThrough = time.Minute // a slower answer counts as lost; an emulated machine stalls for seconds when others need it
)

// TestSchedulerChangesUnderLoad: another scheduler is a change in place. Open connections stay, and
// new ones wait for a second at most, until their client sends its first packet again. No
// destination is created again.
func TestSchedulerChangesUnderLoad(t *testing.T) {
	w := newWorld(t)
	workers := w.workers(t, 0, 3)
	s := service{name: "changing", vip: pair{v4: "10.96.0.60"}, ports: webPorts()[:1], annotations: annotations{"scheduler": "rr"}}
	for _, k := range workers {
		s.backends = append(s.backends, k.endpoint)
	}
	n := newAgent(t, w.node, "--cluster-cidr", clusters)
	n.write(t, s)
	n.start(t)
	profile := load.Profile{To: netip.MustParseAddrPort(s.vip.v4 + ":80"), Sources: w.pod3.clients(t, 30, 4), Every: 4 * time.Second, Timeout: longThrough}
	long, busy := profile, profile
	long.Long, busy.New = openThrough, newThrough
	open := w.pod3.load(t, long)
	until(t, open, "connections held open", func(r load.Report) bool { return r.Long.Alive == openThrough && r.Long.Opened == openThrough })
	coming := w.pod3.load(t, busy)
	more(t, coming, int(newThrough))
	watch := w.node.watch(t)
	askedAgain(t, open)
	for _, name := range []string{"wlc", "mh"} {
		s.annotations = annotations{"scheduler": name}
		start := time.Now()
		n.edit(t, func() { n.write(t, s) })
		line := serverLine(t, w, "TCP  "+s.vip.v4+":80")
		if !strings.HasPrefix(line, "TCP  "+s.vip.v4+":80 "+name) {
			t.Fatalf("ipvsadm shows %q, want %s", line, name)
		}
		t.Logf("figure: under %s %s after the manifest was written", name, time.Since(start).Round(10*time.Millisecond))
		askedAgain(t, open)
		more(t, coming, int(2*newThrough))
	}
	for _, k := range workers {
		watch.unbroken(t, k.at(s), "1")
	}
	held, err := open.Stop()
	if err != nil || held.Long.Alive != openThrough {
		t.Errorf("connections that were open: %v\n%s", err, report(held))
	}
	got, err := coming.Stop()
	t.Logf("figure: of %d connections held open %d live, %d requests answered; of %d new ones %d failed, the slowest took %s",
		openThrough, held.Long.Alive, held.Long.Answers, got.Started, got.Failures(), got.Worst().Round(time.Millisecond))
	unfailing(t, got, err)
	if n := got.Failed[backend.Refused]; n > 0 {
		t.Errorf("%d new connections were refused:\n%s", n, report(got))
	}
}

// askedAgain waits until each connection held open has made a request from now on and had it answered: of two answers one may be
// to a request of before.
func askedAgain(t *testing.T, run *load.Run) {
	t.Helper()
	before := run.Report().Long.Conns
	until(t, run, "each connection to be asked", func(r load.Report) bool {
		for i, c := range r.Long.Conns {
			if c.Answers < before[i].Answers+2 && c.Failure == "" {
				return false
			}
		}
		return true
	})
}
