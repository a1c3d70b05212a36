package packet

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// The clock jumps by these amounts. Then follow the drain time, the time of the slow start, and the
// time in which the CPU use of the agent is measured. The last is how often it may try in that time
// to write a row that the kernel refuses. Both jumps are in the first half of drain and climb.
const (
	jump       = 24 * time.Hour
	jumpDrain  = 40 * time.Second
	jumpClimb  = 30 * time.Second
	jumpWindow = 5 * time.Second
	jumpTries  = 10 // the pauses of the first six alone, 0.1 s that doubles, are longer than the window
)

// setClock moves the clock of this machine, and nothing that counts from its boot.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
	then := unix.NsecToTimespec(now.Nano() + by.Nanoseconds())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &then); err != nil {
		t.Fatalf("set the clock: %v", err)
	}
}

// jumped is what is under way when the clock is set.
type jumped struct {
	*proxy
	w      *world
	rows   *watch
	held   held // at a backend that has left, with a time
	left   time.Time
	sticky pair
	chosen string // the backend of the client there
}

// spends is the processor time that the agent takes in a while.
func (j *jumped) spends(t *testing.T) time.Duration {
	t.Helper()
	before, end := j.cpu(t), time.Now().Add(jumpWindow)
	poll(t, "a while to pass", settleTimeout, func() error {
		if left := time.Until(end); left > 0 {
			return &waiting{left}
		}
		return nil
	})
	return j.cpu(t) - before
}

type waiting struct{ left time.Duration }

func (w *waiting) Error() string { return w.left.String() + " are left" }

// drains asks over the connection that is to drain for a while yet.
func (j *jumped) drains(t *testing.T, when string) {
	t.Helper()
	if time.Since(j.left) > jumpDrain-patience {
		t.Logf("not judged: this machine was so slow that the drain was about to be over %s", when)
		return
	}
	j.held.ask(t)
}

// well checks everything else that shows whether a jump had an effect.
func (j *jumped) well(t *testing.T, when string) {
	t.Helper()
	if tally := j.w.visitor.ask(backend.TCP, j.sticky.v4, 80, 4); tally.OK != 4 || tally.Backends[j.chosen] != 4 {
		t.Errorf("%s: a client was not kept on %s\n%s", when, j.chosen, text(tally))
	}
	for _, url := range []string{"http://127.0.0.1:10256/healthz", "http://127.0.0.1:10256/livez"} {
		if code, body := j.get(t, url); code != http.StatusOK {
			t.Errorf("%s: %s answers %d:\n%s", when, url, code, body)
		}
	}
	before, err := j.status()
	j.must(t, err)
	j.settle(t, "audit another time "+when, func(s agent.Status) bool { return s.Audits > before.Audits })
}

// refuse has the kernel refuse the IPv6 addresses of Services from now on, or no longer. It takes away those that are there.
func (j *jumped) refuse(t *testing.T, on bool) {
	t.Helper()
	text := "0"
	if on {
		text = "1"
	}
	j.sysctl(t, "ipv6/conf/kube-ipvs0/disable_ipv6", text)
}

// counted returns the status, for the number of passes and of refusals in a row.
func (j *jumped) counted(t *testing.T) agent.Status {
	t.Helper()
	s, err := j.status()
	j.must(t, err)
	return s
}

// mended waits until what was refused is written.
func (j *jumped) mended(t *testing.T) {
	t.Helper()
	start := time.Now()
	j.quiet(t)
	took := time.Since(start)
	t.Logf("figure: what was refused was written %v after the kernel took it", took.Round(100*time.Millisecond))
	if text := j.run(t, "ip", "-6", "addr", "show", "dev", "kube-ipvs0"); !strings.Contains(text, j.sticky.v6) {
		t.Errorf("the addresses are\n%s\nwithout %s", text, j.sticky.v6)
	}
}

// strange tells of a line of the log that it is no news of a machine at rest, but for what is refused on purpose.
func strange(line string) bool {
	said := strings.Contains(line, "apply failed, will retry") || strings.Contains(line, "a health check fails")
	if said && strings.Contains(line, "permission denied") {
		return false
	}
	return strings.Contains(line, "WARN") || strings.Contains(line, "warn") || strings.Contains(line, "error")
}

// TestClockJumps: the clock is set a day forward and two days back. Meanwhile connections drain, a
// client has affinity, a backend is in slow start, audits run, and the kernel refuses addresses
// until the clock is set back. All of these times count from the boot of the machine, so nothing
// ends early or late, and the agent does not spin. A backend that becomes idle after the second
// jump is deleted in time.
func TestClockJumps(t *testing.T) {
	if os.Getenv("KUBE_IPVS_E2E_CLOCK") == "" {
		t.Skip("it sets the clock of the machine: the stage contracts of make test has a guest of its own for it")
	}
	w := newWorld(t)
	web := w.web(t)
	patient, climbing, sticky := web, web, web
	patient.name, patient.vip, patient.annotations = "patient", pair{"10.96.0.85", "fd00:96::85"}, annotations{"drain": "1h"}
	climbing.name, climbing.vip = "climbing", pair{"10.96.0.86", "fd00:96::86"}
	climbing.annotations, climbing.backends = annotations{"scheduler": "wrr", "slow-start": jumpClimb.String()}, endpoints(w.pod2, w.remote1)
	sticky.name, sticky.vip, sticky.affinity = "sticky", pair{"10.96.0.87", "fd00:96::87"}, 600
	n := newAgent(t, w.node, "--cluster-cidr", clusters, "--drain", jumpDrain.String(), "--ipvs-sync-period", "2s")
	n.write(t, web, patient, climbing, sticky)
	n.start(t)
	j := &jumped{proxy: n, w: w, rows: w.node.watch(t), held: w.visitor.holdAt(t, backend.TCP, web.vip.v4, w.pod1), sticky: sticky.vip}
	for name := range w.visitor.ask(backend.TCP, sticky.vip.v4, 80, 1).Backends {
		j.chosen = name
	}
	long := w.visitor.holdAt(t, backend.TCP, patient.vip.v4, w.pod1)
	quiet := j.spends(t)

	said := len(n.output.String())
	j.refuse(t, true)
	j.settle(t, "be refused an address", func(s agent.Status) bool { return s.Failures > 0 })
	web.backends, patient.backends, climbing.backends = endpoints(w.pod2, w.remote1), endpoints(w.pod2, w.remote1), endpoints(w.pod1, w.pod2, w.remote1)
	n.write(t, web, patient, climbing)
	leaving, leavingLong := destination(web, backend.TCP, w.pod1, 4), destination(patient, backend.TCP, w.pod1, 4)
	coming := destination(climbing, backend.TCP, w.pod1, 4)
	j.rows.wait(t, leaving, "0")
	j.rows.wait(t, leavingLong, "0")
	for _, x := range j.rows.turns(leaving) {
		j.left = x.at
	}
	defer setClock(t, jump)
	for _, by := range []time.Duration{jump, -2 * jump} {
		when := "after the clock went by " + by.String()
		setClock(t, by)
		j.drains(t, when)
		before := j.counted(t)
		if by < 0 {
			j.refuse(t, false)
			j.mended(t)
		}
		busy := j.spends(t)
		t.Logf("figure: %s the agent took %v of the processor in %v; before it was %v", when, busy, jumpWindow, quiet)
		now := j.counted(t)
		if busy > 4*quiet+jumpWindow*4/5 { // a loop that spins takes all of it
			t.Errorf("%s the agent takes %v in %v, before it was %v", when, busy, jumpWindow, quiet)
		}
		if now.Failures > before.Failures+jumpTries {
			t.Errorf("%s what the kernel refuses was tried %d times in %v", when, now.Failures-before.Failures, jumpWindow)
		}
		j.well(t, when)
	}
	if err := j.rows.is(leavingLong, "0"); err != nil {
		t.Errorf("with a connection: %v", err)
	}
	j.must(t, long.conn.Reset()) // one that is closed is kept for two minutes
	j.rows.wait(t, leaving, gone)
	turns := j.rows.turns(leaving)
	took := turns[len(turns)-1].at.Sub(j.left)
	t.Logf("figure: a drain of %v took %v", jumpDrain, took.Round(100*time.Millisecond))
	if took < jumpDrain-2*time.Second {
		t.Errorf("a drain of %v ended after %v", jumpDrain, took)
	}
	j.ramped(t, coming)
	poll(t, "what is idle to go while the clock is a day behind", 2*settleTimeout, func() error { return j.rows.is(leavingLong, gone) })
	for _, line := range strings.Split(n.output.String()[said:], "\n") {
		if strange(line) {
			t.Errorf("the log has %s", line)
		}
	}
}

// ramped waits for the end of a climb: it took its time, and never went back.
func (j *jumped) ramped(t *testing.T, key serving) {
	t.Helper()
	full := j.rows.turns(destination(service{vip: pair{"10.96.0.86", "fd00:96::86"}}, backend.TCP, j.w.pod2, 4))
	j.rows.wait(t, key, full[len(full)-1].now)
	turns := j.rows.turns(key)
	weight := 0
	for _, x := range turns {
		now, err := strconv.Atoi(x.now)
		if err != nil || now < weight {
			t.Errorf("weights of the climb: %s", j.rows.weights(key))
			break
		}
		weight = now
	}
	took := turns[len(turns)-1].at.Sub(turns[0].at)
	t.Logf("figure: a climb of %v took %v: %s", jumpClimb, took.Round(100*time.Millisecond), j.rows.weights(key))
	if took < jumpClimb*4/5 {
		t.Errorf("a climb of %v took %v", jumpClimb, took)
	}
}
