package packet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// question is a client and an address that it asks, what has to come of it, and what came.
type question struct {
	about  []any // the first columns of its row in the report
	client *pod
	to     string
	port   int
	proto  backend.Proto
	want   outcome

	got   *backend.Tally
	fault string // empty when all is as wanted
}

// outcome is what a question wants: answers, or a failure.
type outcome struct {
	answers []string        // names of backends, exactly those that must answer
	some    bool            // not each has to answer
	sources []pair          // addresses that the backends may see; none: any
	fails   backend.Failure // where there are no answers
}

// The two kinds of a missing answer.
var (
	refused = outcome{fails: backend.Refused}
	dropped = outcome{fails: backend.Timeout}
)

// by requires answers by each of some pods, in turn.
func by(pods ...*pod) outcome {
	var o outcome
	for _, p := range pods {
		o.answers = append(o.answers, p.name)
	}
	slices.Sort(o.answers)
	return o
}

// any requires answers by some of them.
func (o outcome) any() outcome {
	o.some = true
	return o
}

// seeing requires the backends to see one of these addresses.
func (o outcome) seeing(sources ...pair) outcome {
	o.sources = sources
	return o
}

// ask makes the questions of a client to a port of an address: over IPv4 and IPv6, by TCP and UDP unless protocols are given.
func ask(about string, c *pod, to pair, port int, want outcome, by ...backend.Proto) []*question {
	if len(by) == 0 {
		by = []backend.Proto{backend.TCP, backend.UDP}
	}
	var out []*question
	for _, proto := range by {
		for _, addr := range to.all() {
			out = append(out, &question{about: []any{about, c.name}, client: c, to: addr, port: port, proto: proto, want: want})
		}
	}
	return out
}

// Requests of one question: enough to meet each of several endpoints although other questions take turns with it.
const (
	fewest = 4
	most   = 60
)

// put makes the requests, and judges.
func (q *question) put() {
	limit, n := patience, most
	if q.want.fails == backend.Timeout {
		limit = silence
	}
	if q.want.fails != "" {
		n = 1
	}
	q.got = q.client.askUntil(limit, q.proto, q.to, q.port, n, func(got *backend.Tally) bool {
		return got.Failures() > 0 || got.OK >= fewest && (q.want.some || len(got.Backends) >= len(q.want.answers))
	})
	q.fault = q.judge()
}

// judge compares what came with what was wanted.
func (q *question) judge() string {
	if q.want.fails != "" {
		return q.judgeFailure()
	}
	if q.got.Failures() > 0 || !q.want.are(slices.Sorted(maps.Keys(q.got.Backends))) {
		return fmt.Sprintf("want answers by %v", q.want.answers)
	}
	if len(q.want.sources) == 0 {
		return ""
	}
	for addr := range q.got.Clients {
		if !slices.ContainsFunc(q.want.sources, func(p pair) bool { return slices.Contains(p.all(), addr.String()) }) {
			return fmt.Sprintf("the backend saw %s, want one of %v", addr, q.want.sources)
		}
	}
	return ""
}

// are reports whether exactly the wanted backends answered.
func (o outcome) are(answered []string) bool {
	if !o.some {
		return slices.Equal(answered, o.answers)
	}
	return len(answered) > 0 && !slices.ContainsFunc(answered, func(name string) bool { return !slices.Contains(o.answers, name) })
}

// judgeFailure requires the one request to have failed in the right way. A host that sends UDP hears of either way from its own
// kernel, at once: a REJECT and a DROP in OUTPUT both make the call fail.
func (q *question) judgeFailure() string {
	kinds := []backend.Failure{q.want.fails}
	if q.client.name == "host" && q.proto == backend.UDP {
		kinds = append(kinds, backend.Denied)
	}
	for _, kind := range kinds {
		if q.got.Failed[kind] == 1 {
			return ""
		}
	}
	return fmt.Sprintf("want it to fail: %s", q.want.fails)
}

// abreast is how many questions run at a time; most of the time of one is waiting.
const abreast = 16

// put asks all, reports each, and fails for each that was not answered as wanted. The columns have the names for the values in question.about.
func put(t *testing.T, columns []any, questions []*question) {
	t.Helper()
	start := time.Now()
	var running sync.WaitGroup
	free := make(chan struct{}, abreast)
	for _, q := range questions {
		free <- struct{}{}
		running.Go(func() {
			q.put()
			<-free
		})
	}
	running.Wait()
	table := newTable(append(columns, "asked", "wanted", "got", "source seen", "")...)
	held := 0
	for _, q := range questions {
		verdict := "ok"
		if q.fault == "" {
			held++
		} else {
			verdict = "NOT OK"
			t.Errorf("%v: %s %s: %s\n%s", q.about, q.proto, hostPort(q.to, q.port), q.fault, text(q.got))
		}
		table.row(append(q.about, string(q.proto)+" "+hostPort(q.to, q.port), q.want, came(q.got), keys(q.got.Clients, netip.Addr.String), verdict)...)
	}
	t.Logf("answers\n%s%d cells, %d hold, in %s", table, len(questions), held, time.Since(start).Round(time.Second))
}

// String is for the report.
func (o outcome) String() string {
	if o.fails != "" {
		return string(o.fails)
	}
	return strings.Join(o.answers, ",")
}

// came prints who answered, or else how requests failed.
func came(got *backend.Tally) string {
	return keys(got.Backends, strings.Clone) + keys(got.Failed, func(f backend.Failure) string { return string(f) })
}

// keys prints a map's keys in order.
func keys[K comparable](m map[K]int, name func(K) string) string {
	var out []string
	for k := range m {
		out = append(out, name(k))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
