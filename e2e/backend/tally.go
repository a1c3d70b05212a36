package backend

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Tally counts the outcomes of requests. The zero value is ready; it is not for concurrent use.
type Tally struct {
	OK       int
	Failed   map[Failure]int
	Backends map[string]int     // answers by the name that answered
	Clients  map[netip.Addr]int // answers by the address the backend saw

	seen map[Failure]*seen
}

// seen is what is known of failures of one kind: the first of them, and when the first and the last were noticed.
type seen struct {
	first       error
	begin, last time.Time
}

func (s *seen) join(other *seen) *seen {
	if s == nil {
		return &seen{other.first, other.begin, other.last}
	}
	if other.begin.Before(s.begin) {
		s.first, s.begin = other.first, other.begin
	}
	if other.last.After(s.last) {
		s.last = other.last
	}
	return s
}

// Add counts one outcome of Ask.
func (t *Tally) Add(r Reply, err error) {
	t.prepare()
	if err != nil {
		kind := FailureOf(err)
		t.Failed[kind]++
		now := time.Now()
		t.seen[kind] = t.seen[kind].join(&seen{err, now, now})
		return
	}
	t.OK++
	t.Backends[r.Name]++
	t.Clients[r.Client.Addr()]++
}

func (t *Tally) prepare() {
	if t.Failed == nil {
		*t = Tally{Failed: map[Failure]int{}, Backends: map[string]int{}, Clients: map[netip.Addr]int{}, seen: map[Failure]*seen{}}
	}
}

// join adds the outcomes of another tally.
func (t *Tally) join(other *Tally) {
	t.prepare()
	t.OK += other.OK
	for kind, n := range other.Failed {
		t.Failed[kind] += n
		t.seen[kind] = t.seen[kind].join(other.seen[kind])
	}
	for name, n := range other.Backends {
		t.Backends[name] += n
	}
	for client, n := range other.Clients {
		t.Clients[client] += n
	}
}

// Failures is the number of requests that got no answer.
func (t *Tally) Failures() int {
	n := 0
	for _, count := range t.Failed {
		n += count
	}
	return n
}

// barWidth is the length of the bar of a backend that got everything.
const barWidth = 50

// clock is how times of a day are printed.
const clock = "15:04:05.000"

// Print writes the totals, one row for each backend and one for each client address.
func (t *Tally) Print(w io.Writer) error {
	total := t.OK + t.Failures()
	fmt.Fprintf(w, "%d requests, %d answered, %d failed\n", total, t.OK, t.Failures())
	for _, kind := range Failures() {
		if n := t.Failed[kind]; n > 0 {
			s := t.seen[kind]
			fmt.Fprintf(w, "  %d %s from %s to %s, the first: %v\n", n, kind, s.begin.Format(clock), s.last.Format(clock), s.first)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printRows(table, "backend", t.Backends, strings.Compare, t.OK)
	printRows(table, "client", t.Clients, netip.Addr.Compare, t.OK)
	return table.Flush()
}

func printRows[K comparable](w io.Writer, title string, counts map[K]int, order func(a, b K) int, total int) {
	for _, key := range slices.SortedFunc(maps.Keys(counts), order) {
		n := counts[key]
		fmt.Fprintf(w, "  %s\t%v\t%5d\t%s\n", title, key, n, strings.Repeat("#", (n*barWidth+total/2)/total))
	}
}
