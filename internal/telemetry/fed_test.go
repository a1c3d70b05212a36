package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	client "k8s.io/client-go/tools/metrics"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// fed is what a scrape shows after a fixed sequence in which everything happens once.
// The clock is that of a bubble, so all times are the same in every run.
func fed(t *testing.T) (metrics, slis string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, start := telemetry.New(), time.Now()
		m.Families([]model.Family{model.IPv4, model.IPv6})
		describe(m)
		ask(m, start)
		time.Sleep(10 * time.Second) // on the clock of the bubble
		happen(m, start)
		m.RESTClient()
		speak(t)
		metrics, slis = get(t, m.Handler()), get(t, m.SLIs())
	})
	return metrics, slis
}

// describe sets the metrics that do not change.
func describe(m *telemetry.Metrics) {
	m.Mode("ipvs", "ipvs")
	m.Build("v0.1.0", "v1.37.2")
	m.Features(func() []telemetry.Feature {
		return []telemetry.Feature{{Name: "TopologyAwareHints", Enabled: true}, {Name: "Unfinished", Stage: "ALPHA"}}
	})
}

// ask joins what is asked for at a scrape.
func ask(m *telemetry.Metrics, start time.Time) {
	m.Inputs(func() catalog.Changes {
		return catalog.Changes{Services: 7, Slices: 9, PendingServices: 2, PendingSlices: 3, Last: start.Add(4 * time.Second)}
	})
	m.RestoreFailures(func(f model.Family) uint64 { return uint64(f) })
	m.Watches(func() map[string]telemetry.Watch {
		return map[string]telemetry.Watch{"Service": {Heard: start.Add(time.Second)}, "Node": {Failing: "Forbidden"}}
	})
	m.Unreadable(func() int { return 3 })
	m.Sources(func() map[string]bool { return map[string]bool{"kube": true, "file": false} })
	m.Loop(func() agent.Condition {
		return agent.Condition{Busy: start.Add(8 * time.Second), PendingSince: start.Add(4 * time.Second), Failures: 5}
	})
	m.Checks(func() map[string]bool { return map[string]bool{"loop": true, "watch": false} })
	m.ExternalIPs(func() bool { return true })
	m.Firewalls(func() map[[2]string]int { return map[[2]string]int{{"inet filter", "input"}: 3} })
	m.LogLines(func() map[string]uint64 { return map[string]uint64{"stalled": 17, "repeated": 18} })
	m.APIServerProbes(func() telemetry.APIServerProbes {
		return telemetry.APIServerProbes{Up: 41, Out: 42, Ignored: 43, Answered: 44, Failed: 45, Unknown: 46}
	})
	m.Relay(func() telemetry.Relay {
		return telemetry.Relay{
			Open: 47, Failed: 48,
			Connections: map[model.Protocol]uint64{model.TCP: 51, model.UDP: 52}, Limited: map[model.Protocol]uint64{model.TCP: 53, model.UDP: 54},
		}
	})
	m.HealthPorts(func() (open, failed int) { return 15, 16 })
	m.Events(func() uint64 { return 6 })
	m.Sets(func(context.Context) ([]telemetry.SetFill, error) {
		return []telemetry.SetFill{{Name: "KUBE-CLUSTER-IP", Entries: 29, Most: 58}}, nil
	})
	n := newNode()
	n.serve("cart", []string{"10.0.0.1:80"}, "10.96.0.1:80")
	n.serve("front", []string{"10.0.0.1:80"}, "10.96.0.2:80")
	n.carry("10.96.0.1:80", 28)
	m.Services(n.sources(1))
	m.Pickup(func() map[string]bool { return map[string]bool{"tcp": true, "sctp": false} })
	m.IdleTimes(func() (telemetry.IdleTimes, bool) {
		return telemetry.IdleTimes{TCP: 22 * time.Second, TCPFin: 23 * time.Second, UDP: 24 * time.Second}, true
	})
}

// happen tells what happened.
func happen(m *telemetry.Metrics, start time.Time) {
	m.Settings([]byte("mode: ipvs\n"), start)
	m.Reloaded(telemetry.Applied)
	m.Reloaded(telemetry.RestartNeeded)
	m.Probed("/healthz", http.StatusOK)
	m.Probed("/livez", http.StatusServiceUnavailable)
	m.Probed("/readyz", http.StatusOK)
	m.Pinged()
	m.Pass(agent.Pass{At: start.Add(5 * time.Second), Took: time.Second, OK: true, Triggers: []catalog.Trigger{
		{Family: model.IPv4, At: start.Add(4 * time.Second)}, {Family: model.IPv6, At: start},
	}})
	m.Pass(agent.Pass{At: start.Add(7 * time.Second), Took: time.Millisecond})
	m.Cycle(agent.Cycle{Took: time.Millisecond, Rows: []agent.TableRows{{Table: "servers", Adds: 3, Updates: 2, Deletes: 1, Failed: 4}}})
	m.Drift(dataplane.Drift{"addresses": 5})
	m.Tables([]dataplane.TableStatus{{Table: "servers", Desired: 9, Updates: 7, Deletes: 6}})
	m.Drains(dataplane.Drains{Now: 17, Trash: dataplane.Trash{{Until: time.Now().Add(time.Hour), Count: 22}}, Ended: map[dataplane.DrainEnd]uint64{
		dataplane.DrainEmpty: 18, dataplane.DrainDeadline: 19, dataplane.DrainServiceDeleted: 20, dataplane.DrainBack: 21}})
	m.KernelCall("vserver", time.Millisecond, context.DeadlineExceeded)
	m.Swept(model.IPv4, 5*time.Millisecond, 25, nil)
	m.Swept(model.IPv6, time.Second, 26, errors.New("interrupted"))
	m.Counts(agent.Counts{Services: 10, Skipped: 11, Noted: 12, RefusedAnnotations: 27, Unbound: 13, Conflicts: 14, External: 30,
		NoLocal4: agent.NoLocal{Internal: 1, External: 2}, NoLocal6: agent.NoLocal{Internal: 3, External: 4}})
}

// speak has a client of client-go make a request and one that is sent again, and
// reports what such a client does not.
func speak(t *testing.T) {
	t.Helper()
	c := apiClient(t, "200", "429", "200")
	for range 2 {
		if err := c.Get().AbsPath("/version").Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	// Without a bucket that fills the client never waits.
	client.RateLimiterLatency.Observe(t.Context(), "GET", *c.Get().URL(), time.Second)
	client.ExecPluginCalls.Increment(0, "no_error")
	client.ClientCertRotationAge.Observe(time.Hour)
	client.TransportCacheEntries.Observe(1)
	client.TransportCreateCalls.Increment("miss")
	client.TransportCAReloads.Increment("success", "unchanged")
	client.TransportCertRotationGCCalls.Increment()
	client.TransportCacheGCCalls.Increment("deleted")
}

// apiClient is a client of a server that answers with these codes, one after the other.
func apiClient(t *testing.T, codes ...string) rest.Interface {
	t.Helper()
	answers := transport(func(*http.Request) *http.Response {
		code := codes[0]
		codes = codes[1:]
		return &http.Response{StatusCode: int(number(t, code)), Header: http.Header{"Retry-After": {"1"}}, Body: io.NopCloser(strings.NewReader("{}"))}
	})
	config := &rest.Config{Host: "https://10.96.0.1:443", ContentConfig: rest.ContentConfig{
		GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()}}
	c, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: answers})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type transport func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
