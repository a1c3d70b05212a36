package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// node is what the loop and the kernel would tell.
type node struct {
	known    map[model.ServiceID]agent.ServiceInfo
	servers  map[model.FrontendKey]telemetry.VirtualServer
	loads    map[model.FrontendKey]telemetry.Load
	changes  catalog.Changes
	errNames error
	errRead  error
	errLoads error
	// names and reads count how often each was asked.
	names, reads int
}

func newNode() *node {
	return &node{known: map[model.ServiceID]agent.ServiceInfo{}, servers: map[model.FrontendKey]telemetry.VirtualServer{}, loads: map[model.FrontendKey]telemetry.Load{}}
}

func (n *node) sources(most int) telemetry.ServiceSources {
	return telemetry.ServiceSources{
		Most: most, Changes: func() catalog.Changes { return n.changes },
		Services: func(context.Context) ([]model.ServiceID, error) {
			n.names++
			var ids []model.ServiceID
			for id := range n.known {
				ids = append(ids, id)
			}
			slices.SortFunc(ids, model.ServiceID.Compare)
			return ids, n.errNames
		},
		ServicesInfo: func(_ context.Context, ids []model.ServiceID, visit func(agent.ServiceInfo)) error {
			for _, id := range ids {
				visit(n.known[id])
			}
			return n.errNames
		},
		Traffic: func(_ context.Context, visit func(model.FrontendKey, telemetry.VirtualServer)) error {
			n.reads++
			if n.errRead != nil {
				return n.errRead
			}
			for k, v := range n.servers {
				visit(k, v)
			}
			return nil
		},
		Loads: func(_ context.Context, visit func(model.FrontendKey, telemetry.Load)) error {
			if n.errLoads != nil {
				return n.errLoads
			}
			for k, v := range n.loads {
				visit(k, v)
			}
			return nil
		},
	}
}

func key(text string) model.FrontendKey {
	ap := netip.MustParseAddrPort(text)
	return model.FrontendKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: model.TCP}
}

// serve makes a Service of frontends with the same backends, a server for each.
func (n *node) serve(name string, backends []string, frontends ...string) {
	id := model.ServiceID{Origin: model.FromKube, Namespace: "shop", Name: name}
	k := agent.ServiceInfo{ID: id}
	for _, text := range frontends {
		fe := model.Frontend{Key: key(text), Service: id}
		for _, b := range backends {
			fe.Backends = append(fe.Backends, model.Backend{Addr: netip.MustParseAddrPort(b), Weight: 1})
		}
		k.Frontends = append(k.Frontends, fe)
		n.servers[fe.Key] = telemetry.VirtualServer{Scheduler: "rr"}
		n.loads[fe.Key] = telemetry.Load{}
	}
	n.known[id] = k
	n.changes.Services++
}

func (n *node) gone(name string) {
	delete(n.known, model.ServiceID{Origin: model.FromKube, Namespace: "shop", Name: name})
	n.changes.Services++
}

// carry sets what a server has carried by now.
func (n *node) carry(frontend string, connections uint64) {
	n.servers[key(frontend)] = telemetry.VirtualServer{Scheduler: "rr", Carried: telemetry.Carried{
		Connections: connections, PacketsIn: 5 * connections, PacketsOut: 4 * connections, BytesIn: 500 * connections, BytesOut: 4000 * connections}}
}

// scraper scrapes when what was read before is too old to be shown.
func scraper(t *testing.T, n *node, most int) func() string {
	m := telemetry.New()
	m.Services(n.sources(most))
	return func() string {
		time.Sleep(11 * time.Second) // on the clock of the bubble
		return get(t, m.Handler())
	}
}

func connections(name string, n int) string {
	return fmt.Sprintf(`kube_ipvs_service_connections_total{namespace="shop",service=%q} %d`, name, n)
}

// servicesShown are those that have a series.
func servicesShown(text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^kube_ipvs_service_connections_total\{.*service="(.*)"\}`).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestTrafficOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.serve("web", []string{"10.0.0.1:80", "10.0.0.2:80"}, "10.96.0.1:80", "192.0.2.1:30080")
		fe := &n.known[model.ServiceID{Origin: model.FromKube, Namespace: "shop", Name: "web"}].Frontends[0]
		fe.Kept = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.3:80")}
		fe.Backends = append(fe.Backends, model.Backend{Addr: netip.MustParseAddrPort("10.0.0.9:80")}) // gets no new connections
		n.carry("10.96.0.1:80", 10)
		n.carry("192.0.2.1:30080", 1)
		n.servers[key("203.0.113.1:25")] = telemetry.VirtualServer{Scheduler: "wlc", Carried: telemetry.Carried{Connections: 99}} // it belongs to another program
		quiet := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.3:80"), netip.MustParseAddrPort("10.0.0.4:80"), netip.MustParseAddrPort("10.0.0.9:80")}
		n.loads[key("10.96.0.1:80")] = telemetry.Load{Active: 7, Inactive: 3, Quiet: quiet}
		n.loads[key("192.0.2.1:30080")] = telemetry.Load{Active: 1, Quiet: quiet[1:2]}
		text := scraper(t, n, 10)()
		const of = `{namespace="shop",service="web"`
		wants(t, text, connections("web", 11),
			`kube_ipvs_service_packets_total{direction="in",namespace="shop",service="web"} 55`,
			`kube_ipvs_service_packets_total{direction="out",namespace="shop",service="web"} 44`,
			`kube_ipvs_service_bytes_total{direction="in",namespace="shop",service="web"} 5500`,
			`kube_ipvs_service_bytes_total{direction="out",namespace="shop",service="web"} 44000`,
			`kube_ipvs_service_connections`+of+`,state="active"} 8`, `kube_ipvs_service_connections`+of+`,state="inactive"} 3`,
			`kube_ipvs_service_endpoints`+of+`,state="serving"} 2`, `kube_ipvs_service_endpoints`+of+`,state="kept"} 1`,
			`kube_ipvs_service_endpoints`+of+`,state="draining"} 1`,
			`kube_ipvs_service_info{namespace="shop",scheduler="rr",service="web"} 1`, "kube_ipvs_services_summed 0")
		if strings.Contains(text, `service="(others)"`) || strings.Contains(text, `"wlc"`) {
			t.Error("a foreign server is shown")
		}
	})
}

// A counter only grows, whatever becomes of the servers it is the sum of.
func TestCountersOfAServiceNeverGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.serve("web", nil, "10.96.0.1:80", "192.0.2.1:30080")
		scrape := scraper(t, n, 10)
		n.carry("10.96.0.1:80", 100)
		n.carry("192.0.2.1:30080", 50)
		wants(t, scrape(), connections("web", 150))
		n.carry("10.96.0.1:80", 7) // made again
		wants(t, scrape(), connections("web", 157))
		delete(n.servers, key("192.0.2.1:30080"))
		wants(t, scrape(), connections("web", 157))
		n.carry("192.0.2.1:30080", 60) // and is back, with more than it had
		wants(t, scrape(), connections("web", 217))
		n.serve("web", nil, "10.96.0.1:80") // one frontend less
		n.carry("10.96.0.1:80", 9)
		wants(t, scrape(), connections("web", 219))
		n.serve("mail", nil, "10.96.0.1:80") // a frontend of another Service carries for this one
		n.gone("web")
		n.carry("10.96.0.1:80", 10)
		text := scrape()
		wants(t, text, connections("mail", 1))
		if diff := cmp.Diff([]string{"mail"}, servicesShown(text)); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
	})
}

// Those beyond the cap are summed; a Service that has series keeps them as long as it exists.
func TestCapOnServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i, name := range []string{"b", "c", "d", "e"} {
			n.serve(name, []string{"10.0.0.1:80"}, fmt.Sprintf("10.96.0.%d:80", i+1))
			n.carry(fmt.Sprintf("10.96.0.%d:80", i+1), 10)
		}
		scrape := scraper(t, n, 2)
		text := scrape()
		wants(t, text, connections("b", 10), "kube_ipvs_services_summed 2",
			`kube_ipvs_service_connections_total{namespace="",service="(others)"} 20`, `kube_ipvs_service_endpoints{namespace="",service="(others)",state="serving"} 2`)
		if diff := cmp.Diff([]string{"(others)", "b", "c"}, servicesShown(text)); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
		n.serve("a", nil, "10.96.0.9:80") // comes first by name, and late
		n.carry("10.96.0.9:80", 5)
		text = scrape()
		wants(t, text, `kube_ipvs_service_connections_total{namespace="",service="(others)"} 25`)
		if diff := cmp.Diff([]string{"(others)", "b", "c"}, servicesShown(text)); diff != "" {
			t.Errorf("one that came later (-want +got):\n%s", diff)
		}
		n.gone("b")
		n.carry("10.96.0.9:80", 6)
		text = scrape()
		wants(t, text, connections("a", 1), `kube_ipvs_service_connections_total{namespace="",service="(others)"} 25`, "kube_ipvs_services_summed 2")
		if diff := cmp.Diff([]string{"(others)", "a", "c"}, servicesShown(text)); diff != "" {
			t.Errorf("a place is free (-want +got):\n%s", diff)
		}
	})
}

// Two sources may each have a Service of the same name; a contested address counts for the Service
// that has it.
func TestServicesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.serve("web", nil, "10.96.0.1:80")
		twin := model.ServiceID{Origin: model.FromFile, Namespace: "shop", Name: "web"}
		n.known[twin] = agent.ServiceInfo{ID: twin, Frontends: []model.Frontend{{Key: key("10.96.0.2:80")}, {Key: key("10.96.0.1:80")}},
			Lost: []dataplane.Conflict{{Key: key("10.96.0.1:80"), Loser: twin}}}
		n.carry("10.96.0.1:80", 3)
		n.carry("10.96.0.2:80", 4)
		wants(t, scraper(t, n, 10)(), connections("web", 7))
	})
}

func TestScrapesShareOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.serve("web", nil, "10.96.0.1:80")
		m := telemetry.New()
		m.Services(n.sources(10))
		for range 3 {
			get(t, m.Handler())
		}
		if n.reads != 1 || n.names != 1 {
			t.Errorf("%d readings and %d of names, want 1 of each", n.reads, n.names)
		}
		for _, step := range []struct {
			name         string
			pass         time.Duration
			change       func()
			reads, names int
		}{
			{"nothing changed", 11 * time.Second, func() {}, 2, 1},
			{"a Service changed", 11 * time.Second, func() { n.changes.Services++; n.changes.PendingServices = 1 }, 3, 2},
			{"and the loop may not have had it", 11 * time.Second, func() {}, 4, 3},
			{"now it has", 11 * time.Second, func() { n.changes.PendingServices = 0 }, 5, 4},
			{"nothing changed since", 11 * time.Second, func() {}, 6, 4},
			{"a minute later the node may have another address", time.Minute, func() {}, 7, 5},
			{"the next scrape", time.Second, func() {}, 7, 5},
		} {
			time.Sleep(step.pass) // on the clock of the bubble
			step.change()
			get(t, m.Handler())
			if n.reads != step.reads || n.names != step.names {
				t.Errorf("%s: %d readings and %d of names, want %d and %d", step.name, n.reads, n.names, step.reads, step.names)
			}
		}
	})
}

// A reading that failed is counted and leaves series out: a zero would be a lie.
func TestFailedReadingsAreNoZeros(t *testing.T) {
	failed := func(of string, n int) string {
		return fmt.Sprintf(`kube_ipvs_service_reads_failed_total{of=%q} %d`, of, n)
	}
	for _, tt := range []struct {
		name   string
		fail   func(*node)
		want   []string
		absent []string
	}{
		{"traffic", func(n *node) { n.errRead = errors.New("interrupted") }, []string{failed("traffic", 1), failed("names", 0)},
			[]string{"kube_ipvs_service_connections", "kube_ipvs_service_endpoints", "kube_ipvs_services_summed"}},
		{"connections", func(n *node) { n.errLoads = errors.New("no list") },
			[]string{failed("connections", 1), connections("web", 3), `kube_ipvs_service_endpoints{namespace="shop",service="web",state="serving"} 1`},
			[]string{"kube_ipvs_service_connections{", `state="draining"`}},
		{"a server that the list passed over", func(n *node) { delete(n.loads, key("10.96.0.1:80")) },
			[]string{failed("connections", 0), connections("web", 3)}, []string{"kube_ipvs_service_connections{"}},
		{"a loop that is stuck keeps the names of before", func(n *node) { n.errNames = context.DeadlineExceeded; n.changes.Services++ },
			[]string{failed("names", 1), connections("web", 3)}, nil},
		{"another mode", func(n *node) { n.errRead = telemetry.ErrNoServers }, []string{failed("traffic", 0)},
			[]string{"kube_ipvs_service_connections", "kube_ipvs_services_summed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.serve("web", []string{"10.0.0.1:80"}, "10.96.0.1:80")
				n.carry("10.96.0.1:80", 3)
				scrape := scraper(t, n, 10)
				before := scrape()
				tt.fail(n)
				text := scrape()
				wants(t, text, tt.want...)
				for _, a := range tt.absent {
					if strings.Contains(text, "\n"+a) || strings.Contains(text, a+"}") || !strings.Contains(before, a) {
						t.Errorf("%s is shown, or never was", a)
					}
				}
				healed := *newNode()
				n.errNames, n.errRead, n.errLoads, n.loads[key("10.96.0.1:80")] = healed.errNames, healed.errRead, healed.errLoads, telemetry.Load{}
				n.carry("10.96.0.1:80", 5)
				wants(t, scrape(), connections("web", 5), `kube_ipvs_service_connections{namespace="shop",service="web",state="active"} 0`)
			})
		})
	}
}

// Without names no series are shown, and the kernel is not read.
func TestNoNamesYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.serve("web", nil, "10.96.0.1:80")
		n.errNames = context.DeadlineExceeded
		text := scraper(t, n, 10)()
		if n.reads != 0 || len(servicesShown(text)) > 0 {
			t.Errorf("%d readings, %v shown", n.reads, servicesShown(text))
		}
	})
}

// BenchmarkServices is a scrape of 10,000 Services that reads again: names included, and
// traffic alone.
func BenchmarkServices(b *testing.B) {
	for _, tt := range []struct {
		name  string
		churn bool
	}{{"names change", true}, {"traffic alone", false}} {
		b.Run(tt.name, func(b *testing.B) {
			n := newNode()
			for i := range 10_000 {
				n.serve(fmt.Sprintf("s%05d", i), []string{"10.0.0.1:80", "10.0.0.2:80"}, fmt.Sprintf("10.96.%d.%d:80", i/250, i%250))
			}
			read := telemetry.ReadServices(n.sources(500))
			read()
			b.ReportAllocs()
			for b.Loop() {
				if tt.churn {
					n.changes.Services++
				}
				read()
			}
		})
	}
}
