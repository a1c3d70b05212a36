package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// lists are those of a loop that knows some Services, and may get stuck after some of them.
type lists struct {
	reader
	known   []agent.ServiceInfo
	stuck   int // Services after which the loop does not come round; 0 never
	pending []dataplane.PendingTable
	moving  []dataplane.Moving
	looked  int
}

func (l *lists) Services(context.Context) ([]model.ServiceID, error) {
	if l.err != nil {
		return nil, l.err
	}
	ids := make([]model.ServiceID, len(l.known))
	for i, k := range l.known {
		ids[i] = k.ID
	}
	return ids, nil
}

func (l *lists) ServicesInfo(_ context.Context, ids []model.ServiceID, visit func(agent.ServiceInfo)) error {
	for i, id := range ids {
		if l.stuck > 0 && i == l.stuck {
			return context.DeadlineExceeded
		}
		at := slices.IndexFunc(l.known[min(i, len(l.known)):], func(k agent.ServiceInfo) bool { return k.ID == id })
		if at < 0 {
			continue
		}
		l.looked++
		visit(l.known[i+at])
	}
	return nil
}

func (l *lists) Pending(context.Context, int) ([]dataplane.PendingTable, error) {
	return l.pending, l.err
}

func (l *lists) Moving(_ context.Context, list dataplane.MovingList) (dataplane.MovingList, error) {
	for _, m := range l.moving {
		if list.Chooses(&model.Frontend{Key: m.Frontend, Service: m.Service}) {
			list.Add(m.Backend, func() dataplane.Moving { return m })
		}
	}
	return list, l.err
}

func says(text string) func() string { return func() string { return text } }

var rr = scheduler.MustParse("rr")

func id(name string) model.ServiceID {
	namespace, name, _ := strings.Cut(name, "/")
	return model.ServiceID{Origin: model.FromKube, Namespace: namespace, Name: name}
}

func frontend(service string, kind model.Kind, at string, port string, backends ...string) model.Frontend {
	ap := netip.MustParseAddrPort(at)
	f := model.Frontend{
		Key: model.FrontendKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: model.TCP}, Kind: kind, Service: id(service), PortName: port, Scheduler: rr,
	}
	for _, b := range backends {
		f.Backends = append(f.Backends, model.Backend{Addr: netip.MustParseAddrPort(b), Weight: 1})
	}
	return f
}

// cluster is a Service of each state.
func cluster() []agent.ServiceInfo {
	special := frontend("shop/cart", model.KindNodePort, "192.168.0.1:30080", "http", "10.244.0.5:8080")
	special.Local, special.Affinity, special.SourceRanges = true, 3*time.Hour, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	special.Kept = []netip.AddrPort{netip.MustParseAddrPort("10.244.1.7:8080")}
	cart := frontend("shop/cart", model.KindClusterIP, "10.96.0.10:80", "http", "10.244.0.5:8080", "10.244.1.7:8080", "10.244.1.9:8080")
	cart.Backends[2].Weight = 0
	direct := frontend("shop/front", model.KindLoadBalancer, "[2001:db8::80]:443", "", "[fd00:244::5]:443")
	direct.Forward, direct.Limit, direct.SlowStart, direct.Scheduler = model.ForwardDirect, model.Limit{Upper: 100}, time.Minute, scheduler.MustParse("mh")
	held := frontend("shop/old", model.KindExternalIP, "203.0.113.5:80", "", "10.244.0.9:80")
	held.Capture = true
	lost := frontend("shop/copy", model.KindExternalIP, "203.0.113.5:80", "", "10.244.0.8:80")
	return []agent.ServiceInfo{
		{ID: id("default/none"), Skipped: "spec.clusterIP is None"},
		{ID: id("shop/cart"), Frontends: []model.Frontend{cart, special}},
		{ID: id("shop/copy"), Frontends: []model.Frontend{lost}, Lost: []dataplane.Conflict{{Key: lost.Key, Winner: id("shop/old"), Loser: id("shop/copy")}}},
		{ID: id("shop/empty"), Frontends: []model.Frontend{frontend("shop/empty", model.KindClusterIP, "10.96.0.11:80", "")}, Notes: []model.Note{{Code: "Code", Text: "10.96.0.11:80/tcp: no endpoints: no backends"}}},
		{ID: id("shop/front"), Frontends: []model.Frontend{direct}, Notes: []model.Note{{Code: "Code", Text: "a note"}}, BadAnnotations: []string{"a note"}, Unbound: []netip.Addr{netip.MustParseAddr("2001:db8::80")}},
		{ID: id("shop/old"), Frontends: []model.Frontend{held}, Holders: map[netip.Addr]string{held.Key.Addr: "the address of Node worker-7"}},
	}
}

func client(t *testing.T, l *lists) *inspect.Client {
	t.Helper()
	return inspect.NewClient(serve(t, l))
}

// table writes rows as people get them with -o wide.
func table[R any](t *testing.T, table inspect.Table[R], list inspect.List[R], err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := table.Write(&b, list.Items, inspect.TableOptions{Wide: true}); err != nil {
		t.Fatal(err)
	}
	return trimmed(b.String())
}

// trimmed takes the blanks off the ends of lines, which no file should have.
func trimmed(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func TestListsTravelAndAreShown(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	moving := dataplane.Moving{Frontend: model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: model.TCP},
		Service: id("shop/cart"), PortName: "http", Backend: netip.MustParseAddrPort("10.244.0.4:8080"), Since: now.Add(-5 * time.Second), Until: now.Add(25 * time.Second), Connections: dataplane.ConnectionsOpen, Active: 3, Inactive: 12}
	kept, climbs := moving, moving
	kept.Since, kept.Until, kept.Backend, kept.Connections = time.Time{}, time.Time{}, netip.MustParseAddrPort("10.244.0.5:8080"), dataplane.ConnectionsUnknown
	kept.Active, kept.Inactive = 0, 0
	climbs.Climbs, climbs.Weight, climbs.Full, climbs.Backend, climbs.Connections = true, 25, 100, netip.MustParseAddrPort("10.244.0.6:8080"), 0
	c := client(t, &lists{known: cluster(), moving: []dataplane.Moving{climbs, kept, moving}, pending: []dataplane.PendingTable{
		{Table: "servers", More: 3, Rows: []dataplane.PendingRow{{Op: delta.Add, Text: says("ipvsadm -A -t 10.96.0.10:80 -s rr"), Failed: true}, {Op: delta.Delete, Text: says("ipvsadm -D -t 10.96.0.9:80"), Orphan: true}}},
		{Table: "addresses", Rows: []dataplane.PendingRow{{Op: delta.Add, Text: says("ip addr add 10.96.0.10/32 dev kube-ipvs0")}}},
	}})
	var text strings.Builder
	services, err := c.Services(t.Context(), inspect.Filter{})
	text.WriteString(table(t, inspect.ServiceTable(), services, err) + "\n")
	frontends, err := c.Frontends(t.Context(), inspect.Filter{})
	text.WriteString(table(t, inspect.FrontendTable(), frontends, err) + "\n")
	backends, err := c.Backends(t.Context(), inspect.Filter{})
	text.WriteString(table(t, inspect.BackendTable(), backends, err) + "\n")
	pending, err := c.Pending(t.Context(), inspect.Filter{})
	text.WriteString(table(t, inspect.PendingTable(), pending, err) + "\n")
	conflicts, err := c.Conflicts(t.Context(), inspect.Filter{})
	text.WriteString(table(t, inspect.ConflictTable(), conflicts, err) + "\n")
	draining, err := c.Draining(t.Context(), inspect.Filter{})
	text.WriteString(table(t, inspect.MovingTable(now), draining, err))
	golden(t, "lists.txt", text.String())
	if diff := cmp.Diff(map[string]int{"servers": 3}, pending.More); diff != "" {
		t.Errorf("more pending (-want +got):\n%s", diff)
	}
}

// Filters choose by namespace, name, address and backend, and the loop is not asked about Services of another name.
func TestFilters(t *testing.T) {
	place := func(s string) inspect.Place {
		p, err := inspect.ParsePlace(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tt := range []struct {
		name                string
		filter              inspect.Filter
		services, frontends []string
		backends            []string
	}{
		{"namespace", inspect.Filter{Namespace: "default"}, []string{"none"}, nil, nil},
		{"name", inspect.Filter{Namespace: "shop", Name: "old"}, []string{"old"}, []string{"203.0.113.5:80/tcp"}, []string{"10.244.0.9:80"}},
		{"VIP", inspect.Filter{VIP: place("10.96.0.10")}, []string{"cart"}, []string{"10.96.0.10:80/tcp"}, []string{"10.244.0.5:8080", "10.244.1.7:8080", "10.244.1.9:8080"}},
		{"VIP and another port", inspect.Filter{VIP: place("10.96.0.10:81")}, nil, nil, nil},
		{"range of VIPs", inspect.Filter{VIP: place("2001:db8::/32")}, []string{"front"}, []string{"[2001:db8::80]:443/tcp"}, []string{"[fd00:244::5]:443"}},
		{"backend", inspect.Filter{Backend: place("10.244.1.7")}, []string{"cart"}, []string{"10.96.0.10:80/tcp", "192.168.0.1:30080/tcp"}, []string{"10.244.1.7:8080"}},
		{"backend and port", inspect.Filter{Backend: place("[fd00:244::5]:443")}, []string{"front"}, []string{"[2001:db8::80]:443/tcp"}, []string{"[fd00:244::5]:443"}},
		{"nothing", inspect.Filter{Name: "unknown"}, nil, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := client(t, &lists{known: cluster()})
			services, err1 := c.Services(t.Context(), tt.filter)
			frontends, err2 := c.Frontends(t.Context(), tt.filter)
			backends, err3 := c.Backends(t.Context(), tt.filter)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			got := [][]string{
				texts(services.Items, func(r inspect.ServiceRow) string { return r.Name }),
				texts(frontends.Items, func(r inspect.FrontendRow) string { return r.Frontend }),
				texts(backends.Items, func(r inspect.BackendRow) string { return r.Backend }),
			}
			if diff := cmp.Diff([][]string{tt.services, tt.frontends, tt.backends}, got); diff != "" {
				t.Errorf("services, frontends, backends (-want +got):\n%s", diff)
			}
		})
	}
	l := &lists{known: cluster()}
	if _, err := client(t, l).Services(t.Context(), inspect.Filter{Name: "cart"}); err != nil || l.looked != 1 {
		t.Errorf("the loop was asked about %d Services, error %v, want 1", l.looked, err)
	}
	moving := []dataplane.Moving{
		{Service: id("shop/cart"), Frontend: model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80}, Backend: netip.MustParseAddrPort("10.244.0.4:80")},
		{Service: id("shop/old"), Frontend: model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.11"), Port: 80}, Backend: netip.MustParseAddrPort("10.244.0.4:80")},
		{Service: id("shop/old"), Frontend: model.FrontendKey{Addr: netip.MustParseAddr("10.96.0.12"), Port: 80}, Backend: netip.MustParseAddrPort("10.244.0.5:80")},
	}
	for _, tt := range []struct {
		filter inspect.Filter
		want   int
	}{
		{inspect.Filter{}, 3}, {inspect.Filter{Name: "old"}, 2}, {inspect.Filter{VIP: place("10.96.0.11")}, 1},
		{inspect.Filter{Backend: place("10.244.0.4")}, 2}, {inspect.Filter{Name: "old", Backend: place("10.244.0.4:80")}, 1}, {inspect.Filter{Namespace: "x"}, 0},
	} {
		list, err := client(t, &lists{moving: moving}).Draining(t.Context(), tt.filter)
		if err != nil || len(list.Items) != tt.want {
			t.Errorf("%+v: %d drain, error %v, want %d", tt.filter, len(list.Items), err, tt.want)
		}
	}
	for _, name := range []string{"old", "copy"} { // of a conflict both are asked for
		c, err := client(t, &lists{known: cluster()}).Conflicts(t.Context(), inspect.Filter{Name: name})
		if err != nil || len(c.Items) != 1 {
			t.Errorf("conflicts of %s: %+v, error %v", name, c.Items, err)
		}
	}
}

func texts[R any](rows []R, text func(R) string) (out []string) {
	for _, r := range rows {
		out = append(out, text(r))
	}
	return out
}

func TestPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"10.96.0.10": "10.96.0.10", "10.96.0.10:80": "10.96.0.10:80", "10.96.0.9/16": "10.96.0.0/16", "::ffff:10.0.0.1": "10.0.0.1",
		"[fd00::1]:80": "[fd00::1]:80", "fd00::1": "fd00::1", "10.96.0.10/32": "10.96.0.10",
	} {
		if p, err := inspect.ParsePlace(text); err != nil || p.String() != want {
			t.Errorf("%s is %s, error %v, want %s", text, p, err, want)
		}
	}
	for _, bad := range []string{"", "web", "10.96.0", "10.96.0.10:http"} {
		if p, err := inspect.ParsePlace(bad); err == nil {
			t.Errorf("%q is %s", bad, p)
		}
	}
}

// 10,000 Services come whole and in order, in pieces.
func TestManyServicesTravel(t *testing.T) {
	const many = 10_000
	known := make([]agent.ServiceInfo, many)
	for i := range known {
		name := fmt.Sprintf("ns-%d/s-%05d", i/1000, i)
		known[i] = agent.ServiceInfo{ID: id(name), Frontends: []model.Frontend{
			frontend(name, model.KindClusterIP, fmt.Sprintf("10.%d.%d.%d:80", 96+i>>16, i>>8&255, i&255), "", "10.244.0.1:80", "10.244.0.2:80"),
		}}
	}
	l := &lists{known: known}
	got, err := client(t, l).Services(t.Context(), inspect.Filter{})
	if err != nil || len(got.Items) != many || l.looked != many {
		t.Fatalf("%d services of %d, error %v", len(got.Items), l.looked, err)
	}
	for i, s := range got.Items {
		if s.Namespace+"/"+s.Name != known[i].ID.String() || s.Backends != 2 || s.State != inspect.StateServing {
			t.Fatalf("service %d is %+v", i, s)
		}
	}
}

// Part of a list is never taken for the whole, wherever the loop gets stuck.
func TestListsOfAStuckLoop(t *testing.T) {
	c := client(t, &lists{known: cluster(), stuck: 3})
	if list, err := c.Services(t.Context(), inspect.Filter{}); err == nil || !strings.Contains(err.Error(), "is incomplete") || list.Items != nil {
		t.Errorf("%d services, error %v", len(list.Items), err)
	}
	stuck := &lists{reader: reader{err: context.DeadlineExceeded}}
	if _, err := client(t, stuck).Services(t.Context(), inspect.Filter{}); err == nil || !strings.Contains(err.Error(), "the loop of the agent is busy or stuck") {
		t.Errorf("services: error %v", err)
	}
	if _, err := client(t, stuck).Pending(t.Context(), inspect.Filter{}); err == nil || !strings.Contains(err.Error(), "the loop of the agent is busy or stuck") {
		t.Errorf("pending: error %v", err)
	}
	if list, err := client(t, &lists{}).Services(t.Context(), inspect.Filter{}); err != nil || list.Items == nil || len(list.Items) != 0 {
		t.Errorf("no services: %+v, error %v, want an empty list", list, err)
	}
}

func TestBadFilterIsRefused(t *testing.T) {
	h := inspect.Handler(&lists{known: cluster()}, http.NotFoundHandler(), unwell)
	for _, query := range []string{"vip=web", "backend=1.2.3", "colour=red"} {
		if got := status(t, h, "/v1/services?"+query); got != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", query, got)
		}
	}
}

// An agent that is stopped in the middle of a list is not waited for.
func TestSilentAgentIsSaid(t *testing.T) {
	c := inspect.NewClient(halting(t, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"items\":["))
	c.SetPatience(100 * time.Millisecond)
	if _, err := c.Services(t.Context(), inspect.Filter{}); err == nil || !strings.Contains(err.Error(), "stopped or stuck") {
		t.Errorf("error %v", err)
	}
}

// TestHealthIsSaidWhileTheLoopHangs: reasons included, for only root may ask here.
func TestHealthIsSaidWhileTheLoopHangs(t *testing.T) {
	stuck := &lists{reader: reader{err: context.DeadlineExceeded}}
	list, err := client(t, stuck).Health(t.Context(), inspect.Filter{})
	if diff := cmp.Diff(unwell(t.Context()), list.Items); err != nil || diff != "" {
		t.Errorf("error %v, health (-want +got):\n%s", err, diff)
	}
}
