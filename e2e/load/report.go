package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// Report is what became of a run.
type Report struct {
	Began time.Time
	Took  time.Duration // from the beginning to the last outcome

	// New connections. Started is OK, the sum of Failed, and those under way, of which there are none after Stop.
	Started, OK int
	Failed      map[backend.Failure]int
	// Resent are the failed new connections of which a packet had to be sent twice: the machine, or the way, stalled for a second.
	Resent   int
	First    map[backend.Failure]Incident // first of each kind
	Backends map[string]int               // answers by the name that answered
	Series   []Second                     // by the second in which the connection started
	NoPort   int                          // not started at all: every port of the range was in use; not in Started
	Late     time.Duration                // the most that a start was behind its time

	Long Long
}

// Second counts the connections that started in one second of a run.
type Second struct {
	Started, OK, Failed int
	Worst               time.Duration // the longest that one took to be answered
}

// Incident is a failure, for the reader.
type Incident struct {
	At  time.Time
	Err error // names both ends
}

// Long is what became of the connections held open.
type Long struct {
	Opened  int // answered at least once
	Alive   int // not cut; after Stop, each has answered a last request
	Answers int
	Failed  map[backend.Failure]int // by how they ended that did not live, or never opened
	Conns   []Conn                  // all, in the order of their opening
}

// Conn is one connection held open.
type Conn struct {
	Client  netip.AddrPort // where it leaves from
	Backend string         // the backend that answers; empty before the first answer
	Answers int
	Worst   time.Duration // the longest that an answer took

	Failure backend.Failure // how it ended; empty while it lives
	Cut     Incident        // when, and what the socket said
}

// Failures is the number of new connections that got no answer.
func (r Report) Failures() int { return sum(r.Failed) }

// Worst is the longest that a new connection took to be answered.
func (r Report) Worst() time.Duration {
	worst := time.Duration(0)
	for _, s := range r.Series {
		worst = max(worst, s.Worst)
	}
	return worst
}

// Rate is how many new connections a second were started.
func (r Report) Rate() float64 { return float64(r.Started) / max(r.Took.Seconds(), 1e-9) }

// Cuts is the number of long connections that ended, or never opened.
func (l Long) Cuts() int { return sum(l.Failed) }

func sum(counts map[backend.Failure]int) int {
	n := 0
	for _, count := range counts {
		n += count
	}
	return n
}

// Print writes the totals, the first failure of each kind, the seconds in which something failed, the backends, and the long
// connections that were cut.
func (r Report) Print(w io.Writer) error {
	p := printer{w: w}
	p.line("%d new connections in %s (%.0f a second, at most %s late), %d answered, %d failed; the longest took %s\n",
		r.Started, r.Took.Round(time.Millisecond), r.Rate(), r.Late.Round(time.Millisecond), r.OK, r.Failures(), r.Worst().Round(time.Millisecond))
	if r.NoPort > 0 {
		p.line("  %d not started: no source port was free\n", r.NoPort)
	}
	for _, kind := range backend.Failures() {
		if n := r.Failed[kind]; n > 0 {
			p.line("  %d %s, the first after %s: %v\n", n, kind, r.after(r.First[kind].At), r.First[kind].Err)
		}
	}
	for i, s := range r.Series {
		if s.Failed > 0 {
			p.line("  second %d: %d started, %d answered, %d failed, the longest %s\n", i, s.Started, s.OK, s.Failed, s.Worst.Round(time.Millisecond))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Backends)) {
		p.line("  backend %s %d\n", name, r.Backends[name])
	}
	r.printLong(&p)
	return p.err
}

func (r Report) printLong(p *printer) {
	if len(r.Long.Conns) == 0 {
		return
	}
	p.line("%d long connections opened, %d alive, %d cut, %d requests answered\n", r.Long.Opened, r.Long.Alive, r.Long.Cuts(), r.Long.Answers)
	cut := slices.DeleteFunc(slices.Clone(r.Long.Conns), func(c Conn) bool { return c.Failure == "" })
	slices.SortStableFunc(cut, func(a, b Conn) int { return a.Cut.At.Compare(b.Cut.At) })
	for _, c := range cut {
		p.line("  %s on %s after %s and %d answers: %v\n", c.Failure, cmp.Or(c.Backend, "no backend"), r.after(c.Cut.At), c.Answers, c.Cut.Err)
	}
}

func (r Report) after(at time.Time) time.Duration { return at.Sub(r.Began).Round(time.Millisecond) }

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// clone makes a report that a run does not go on changing.
func (r Report) clone() Report {
	r.Failed, r.First, r.Backends = maps.Clone(r.Failed), maps.Clone(r.First), maps.Clone(r.Backends)
	r.Series, r.Long.Conns, r.Long.Failed = slices.Clone(r.Series), slices.Clone(r.Long.Conns), maps.Clone(r.Long.Failed)
	return r
}
