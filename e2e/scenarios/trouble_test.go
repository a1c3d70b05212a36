package scenarios_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

// twenty is a Service with twenty endpoints, and another one.
func twenty() string {
	text := service("web", "10.96.0.10") + "---\n" + service("other", "10.96.0.11") + "---\n" + sliceHead
	for i := range 20 {
		text += fmt.Sprintf("- {addresses: [10.244.1.%d]}\n", 1+i)
	}
	return text
}

func service(name, address string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {namespace: default, name: " + name + "}\nspec: {clusterIP: " + address + ", ports: [{port: 80}]}\n"
}

const sliceHead = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints:
`

// troubled is a node whose kernel calls fail as told.
type troubled struct {
	*testing.T
	*scenario.Fakes
}

func newTroubled(t *testing.T) troubled {
	work := t.TempDir()
	if err := os.Mkdir(filepath.Join(work, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "manifests", "web.yaml"), []byte(twenty()), 0o644); err != nil {
		t.Fatal(err)
	}
	n := scenario.NewFakes(work)
	t.Cleanup(n.Close)
	return troubled{t, n}
}

func (n troubled) spoil(pkg string, spec ...string) {
	n.Helper()
	if err := n.Fault(pkg, spec); err != nil {
		n.Fatal(err)
	}
}

func (n troubled) start() {
	n.Helper()
	if err := n.Start(scenario.Start{}); err != nil {
		n.Fatal(err)
	}
}

// until asks until the status is as wanted, and returns it.
func (n troubled) until(what string, as func(agent.Status) bool) agent.Status {
	n.Helper()
	interval, deadline := n.Pace()
	for end := time.Now().Add(deadline); ; time.Sleep(interval) {
		s, err := n.Status(n.Context())
		if err != nil {
			n.Fatalf("the loop does not answer: %v", err)
		}
		if as(s) {
			return s
		}
		if time.Now().After(end) {
			n.Fatalf("never: %s; status %+v; the log:\n%s", what, s, n.Log())
		}
	}
}

func failedSo(often uint64) func(agent.Status) bool {
	return func(s agent.Status) bool { return s.Failures >= often }
}

// metric is what the agent serves under a name with labels, "" for nothing.
func (n troubled) metric(name string) string {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(n.Metrics())
	if m == nil {
		return ""
	}
	return m[1]
}

// well waits until nothing is wrong any more, and no report claims so.
func (n troubled) well() agent.Status {
	n.Helper()
	s := n.until("all is well", func(s agent.Status) bool { return s.Ready && s.Healthy && s.Failures == 0 })
	if diff, err := scenario.Differ(n, scenario.Start{}); err != nil || diff != "" {
		n.Errorf("the kernel is not as planned, error %v:\n%s", err, diff)
	}
	if got := n.metric("kube_ipvs_loop_failures"); s.LastError != "" || got != "0" {
		n.Errorf("it is over and status has %q, metrics %s failures", s.LastError, got)
	}
	return s
}

const injected = "fault injected by the test"

// mostPause is the longest time between two tries of an agent of scenarios.
const mostPause = 20 * time.Millisecond

// A kernel that fails from the beginning leaves an agent that answers, reports why, is not
// healthy, and tries again no faster than its backoff lets it.
func TestKernelFailsFromTheBeginning(t *testing.T) {
	for _, pkg := range scenario.Packages() {
		for _, kind := range []scenario.FaultKind{scenario.Fail, scenario.Hang, "EPERM"} {
			t.Run(fmt.Sprintf("%s/%s", pkg, kind), func(t *testing.T) {
				t.Parallel()
				n := newTroubled(t)
				n.spoil(pkg, "always", string(kind))
				n.start()
				s := n.until("it fails again and again", failedSo(8))
				if s.Healthy || s.Ready || !strings.Contains(s.LastError, injected) {
					t.Errorf("healthy %t, ready %t, last error %q", s.Healthy, s.Ready, s.LastError)
				}
				if got := n.metric("kube_ipvs_loop_failures"); got == "" || got == "0" {
					t.Errorf("metrics have %q failures", got)
				}
				if got := n.metric(`kube_ipvs_kernel_call_timeouts_total{room="` + pkg + `"}`); (got != "0") != (kind == scenario.Hang) {
					t.Errorf("metrics have %q time-outs", got)
				}
				n.paced(pkg)
				n.Heal()
				n.well()
			})
		}
	}
}

// paced checks that for a while there are no more tries than the backoff lets there be,
// and no more calls than tries.
func (n troubled) paced(pkg string) {
	n.Helper()
	n.until("the backoff is long", failedSo(8))
	// The time begins before the first status and ends after the last one. The calls are
	// counted between the two, so that no pause of this goroutine adds calls without tries.
	start := time.Now()
	from := n.until("the backoff is long", failedSo(8))
	calls := n.Calls()[pkg]
	n.until("it goes on", failedSo(from.Failures+6))
	made := n.Calls()[pkg] - calls
	to := n.until("it goes on", failedSo(from.Failures+6))
	tries, most := to.Failures-from.Failures, 1+uint64(time.Since(start)/mostPause)
	if tries > most {
		n.Errorf("%d tries, the backoff lets there be %d", tries, most)
	}
	if uint64(made) > 3*(tries+1) {
		n.Errorf("%d calls in %d tries", made, tries)
	}
}

// One row that the kernel refuses costs its own tries: rows in place are not written
// again, and when it is taken it alone is.
func TestRefusedRowIsAllThatIsTriedAgain(t *testing.T) {
	for _, tt := range []struct{ pkg, row, table string }{
		{"servers", "10.244.1.7:8080", "destinations"},
		{"servers", "add 10.96.0.11:80", "servers"},
		{"sets", "KUBE-CLUSTER-IP 10.96.0.11,", "members"},
		{"rules", "ip filter KUBE-FORWARD", "chains"},
		{"links", "10.96.0.11", "addresses"},
	} {
		t.Run(tt.table, func(t *testing.T) {
			t.Parallel()
			n := newTroubled(t)
			n.spoil(tt.pkg, "row", tt.row, "ENOMEM")
			n.start()
			before := n.until("it fails", failedSo(8))
			n.refused(tt.table, before)
			n.paced(tt.pkg)
			after := n.until("it goes on", failedSo(before.Failures+1))
			for table, rows := range after.Written {
				if rows != before.Written[table] {
					t.Errorf("%d rows of %s were written by tries of another", rows-before.Written[table], table)
				}
			}
			n.Heal()
			if now := n.well(); now.Written[tt.table] != before.Written[tt.table]+1 {
				t.Errorf("%d rows of %s written in the end, want 1", now.Written[tt.table]-before.Written[tt.table], tt.table)
			}
		})
	}
}

// refused checks what is told of one row that cannot be written.
func (n troubled) refused(table string, s agent.Status) {
	n.Helper()
	if !s.Healthy || s.Ready || !strings.Contains(s.LastError, injected) {
		n.Errorf("healthy %t, ready %t, last error %q", s.Healthy, s.Ready, s.LastError)
	}
	for _, t := range s.Tables {
		if t.Table == table && t.Updates != 1 {
			n.Errorf("%d rows of %s pending, want 1", t.Updates, table)
		}
	}
	if got := n.metric(fmt.Sprintf(`kube_ipvs_rows_pending{op="update",table=%q}`, table)); got != "1" {
		n.Errorf("metrics have %q rows pending", got)
	}
	if got := n.metric(fmt.Sprintf(`kube_ipvs_rows_failed_total{table=%q}`, table)); got == "" || got == "0" {
		n.Errorf("metrics have %q failed writes", got)
	}
}

// A kernel that carries everything and cannot be read any more is no reason to send traffic
// elsewhere, but the operator must learn of it.
func TestKernelThatCannotBeRead(t *testing.T) {
	for _, pkg := range scenario.Packages() {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			n := newTroubled(t)
			if err := n.Start(scenario.Start{Audit: true}); err != nil {
				t.Fatal(err)
			}
			n.well()
			n.spoil(pkg, "always", "ENOMEM")
			s := n.until("it is told", func(s agent.Status) bool { return s.AuditError != "" })
			if !s.Healthy || !strings.Contains(s.AuditError, injected) {
				t.Errorf("healthy %t, audits fail with %q", s.Healthy, s.AuditError)
			}
			if got := n.metric("kube_ipvs_audit_failures_total"); got == "" || got == "0" {
				t.Errorf("metrics have %q failures", got)
			}
			n.Heal()
			n.until("it is over", func(s agent.Status) bool { return s.AuditError == "" })
		})
	}
}

// The loop answers while a call hangs again and again, well before all rows have had
// their deadline.
func TestLoopAnswersWhileCallsHang(t *testing.T) {
	n := newTroubled(t)
	n.spoil("sets", "nth", "2", "hang") // 1 lists, 2 makes the first of some forty
	n.start()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	defer cancel()
	if _, err := n.Status(ctx); err != nil {
		t.Fatal(err)
	}
	n.well()
}
