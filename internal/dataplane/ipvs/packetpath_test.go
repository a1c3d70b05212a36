package ipvs_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/describe"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

func frontend(kind model.Kind, key string, change func(f *model.Frontend)) model.Frontend {
	k, err := model.ParseFrontendKey(key)
	if err != nil {
		panic(err)
	}
	f := model.Frontend{Key: k, Kind: kind, Service: gone("web").ID, Scheduler: rr, Bind: kind != model.KindNodePort,
		Backends: []model.Backend{{Addr: netip.MustParseAddrPort("10.244.0.1:8080"), Weight: 1}}}
	if change != nil {
		change(&f)
	}
	return f
}

func dark(f *model.Frontend) { f.Backends, f.Local, f.NoLocal = nil, true, true }

// ends are those of packets from a pod, from the host and from outside, a letter each with "s" where
// the source is kept.
func ends(m *ipvs.Mode, p dataplane.Packet) string {
	var out []string
	for _, o := range dataplane.Origins() {
		p.Origin = o
		w := m.PacketPath(p)
		text := string(w.End)
		if w.SourceKept {
			text += " with its source"
		}
		out = append(out, string(o)+" "+text)
	}
	return strings.Join(out, ", ")
}

func TestPacketPath(t *testing.T) {
	cluster := frontend(model.KindClusterIP, "10.96.0.10:80/tcp", nil)
	detour := func(f *model.Frontend) { f.Detour = netip.MustParseAddrPort("10.96.0.10:80") }
	limited := func(f *model.Frontend) { f.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")} }
	all := func(o ...func(*model.Frontend)) func(*model.Frontend) {
		return func(f *model.Frontend) {
			for _, one := range o {
				one(f)
			}
		}
	}
	local := func(f *model.Frontend) { f.Local = true }
	for _, tt := range []struct {
		name   string
		change func(*ipvs.Config)
		to     model.Frontend
		source string
		want   string
	}{
		{"cluster IP", nil, cluster, "", "pod forwarded with its source, host forwarded, outside forwarded"},
		{"cluster IP, all masqueraded", func(c *ipvs.Config) { c.MasqueradeAll = true }, cluster, "", "pod forwarded, host forwarded, outside forwarded"},
		{"cluster IP, nothing tells pods", func(c *ipvs.Config) { c.Local = netfilter.LocalPods{} }, cluster, "",
			"pod forwarded with its source, host forwarded, outside forwarded with its source"},
		{"no endpoints", nil, frontend(model.KindClusterIP, "10.96.0.10:80/tcp", func(f *model.Frontend) { f.Backends = nil }), "",
			"pod refused, host refused, outside refused"},
		{"all drained", nil, frontend(model.KindClusterIP, "10.96.0.10:80/tcp", func(f *model.Frontend) { f.Backends[0].Weight = 0 }), "",
			"pod refused, host refused, outside refused"},
		{"internal policy Local, no endpoint here", nil, frontend(model.KindClusterIP, "10.96.0.10:80/tcp", dark), "", "pod dropped, host dropped, outside dropped"},
		{"external IP", nil, frontend(model.KindExternalIP, "203.0.113.1:80/tcp", nil), "", "pod forwarded, host forwarded, outside forwarded"},
		{"external policy Local", nil, frontend(model.KindExternalIP, "203.0.113.1:80/tcp", all(local, detour)), "",
			"pod forwarded with its source, host forwarded, outside forwarded with its source"},
		{"external policy Local, no endpoint here", nil, frontend(model.KindLoadBalancer, "203.0.113.1:80/tcp", all(dark, detour)), "",
			"pod forwarded with its source, host forwarded, outside dropped"},
		{"node port", nil, frontend(model.KindNodePort, "192.168.0.1:30080/tcp", nil), "", "pod forwarded, host forwarded, outside forwarded"},
		{"node port, Local, no endpoint here", nil, frontend(model.KindNodePort, "192.168.0.1:30080/sctp", all(dark, detour)), "",
			"pod forwarded with its source, host forwarded, outside dropped"},
		{"source in range", nil, frontend(model.KindLoadBalancer, "203.0.113.1:80/tcp", limited), "198.51.100.7", "pod forwarded, host dropped, outside forwarded"},
		{"source out of range", nil, frontend(model.KindLoadBalancer, "203.0.113.1:80/tcp", limited), "192.0.2.7", "pod dropped, host dropped, outside dropped"},
		{"out of range takes no detour", nil, frontend(model.KindLoadBalancer, "203.0.113.1:80/tcp", all(limited, local, detour)), "192.0.2.7",
			"pod dropped, host dropped, outside dropped"},
		{"this node is in range", nil, frontend(model.KindLoadBalancer, "203.0.113.1:80/tcp", all(limited, func(f *model.Frontend) { f.OwnNode = true })), "",
			"pod forwarded, host forwarded, outside forwarded"},
		{"direct server return", nil, frontend(model.KindExternalIP, "203.0.113.1:80/tcp", all(detour, func(f *model.Frontend) { f.Forward = model.ForwardDirect })), "",
			"pod forwarded with its source, host forwarded, outside forwarded with its source"},
		{"what is for detours alone", nil, frontend(model.KindDetour, "10.96.0.10:32848/tcp", nil), "", "pod refused, host dropped, outside refused"},
		{"IPv6 without a range of pods", nil, frontend(model.KindClusterIP, "[fd00:96::10]:80/tcp", nil), "",
			"pod forwarded with its source, host forwarded, outside forwarded with its source"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config()
			if tt.change != nil {
				tt.change(&c)
			}
			p := dataplane.Packet{To: tt.to, Detour: &cluster}
			if tt.source != "" {
				p.Source = netip.MustParseAddr(tt.source)
			}
			if got := ends(ipvs.New(zap.NewNop(), c, ipvs.Deps{}), p); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// setNames are those of sets in the words of a step.
var setNames = regexp.MustCompile(`(?:in|\() ?(KUBE-[A-Z0-9-]+)`)

// The sets that a walk names for a frontend have its entries. TestPacketPathNamesTheTunnel: which header
// a backend finds around a packet.
func TestPacketPathNamesTheTunnel(t *testing.T) {
	m := ipvs.New(zap.NewNop(), ipvs.Config{}, ipvs.Deps{})
	for _, tt := range []struct {
		gue  uint16
		want string
	}{{0, "(tunnel)"}, {5555, "(tunnel by GUE, UDP port 5555)"}} {
		to := frontend(model.KindExternalIP, "203.0.113.1:80/tcp", func(f *model.Frontend) { f.Forward, f.GUE = model.ForwardTunnel, tt.gue })
		steps := m.PacketPath(dataplane.Packet{Origin: dataplane.FromOutside, To: to}).Steps
		if last := steps[len(steps)-1]; !strings.Contains(last, tt.want) {
			t.Errorf("GUE port %d: the last step is %q, want %s in it", tt.gue, last, tt.want)
		}
	}
}

func TestPacketPathNamesTheSetsThatAreWritten(t *testing.T) {
	detour := func(f *model.Frontend) { f.Detour, f.Local = netip.MustParseAddrPort("10.96.0.10:80"), true }
	cluster := frontend(model.KindClusterIP, "10.96.0.10:80/tcp", nil)
	checked := 0
	for _, f := range []model.Frontend{
		cluster, frontend(model.KindExternalIP, "203.0.113.1:80/tcp", nil), frontend(model.KindExternalIP, "203.0.113.2:80/tcp", detour),
		frontend(model.KindLoadBalancer, "203.0.113.3:80/tcp", nil), frontend(model.KindLoadBalancer, "203.0.113.4:80/tcp", detour),
		frontend(model.KindLoadBalancer, "203.0.113.5:80/tcp", dark), frontend(model.KindNodePort, "192.168.0.1:30080/udp", nil),
		frontend(model.KindNodePort, "192.168.0.1:30081/sctp", detour), frontend(model.KindClusterIP, "[fd00:96::10]:80/tcp", nil),
	} {
		plans := []model.ServicePlan{{ID: f.Service, Frontends: []model.Frontend{f}}}
		if f.Detour.IsValid() {
			plans[0].Frontends = []model.Frontend{cluster, f}
		}
		m := begin(t, newKernel(), plans...)
		rows, err := m.RowsOf([]model.FrontendKey{f.Key})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range dataplane.Origins() {
			for _, step := range m.PacketPath(dataplane.Packet{Origin: o, To: f, Detour: &cluster}).Steps {
				for _, name := range setNames.FindAllStringSubmatch(step, -1) {
					if !strings.Contains(step, "in "+name[1]) || strings.Contains(step, "KUBE-LOOP-BACK") {
						continue
					}
					checked++
					if !strings.Contains(rows.Desired["sets"], "add "+name[1]+" ") {
						t.Errorf("%s %s, step %q: it is not in %s:\n%s", f.Kind, f.Key, step, name[1], rows.Desired["sets"])
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d sets checked: the steps tell nothing", checked)
	}
}

func TestRowsOf(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, dual)
	key := web.Frontends[0].Key
	before, err := m.RowsOf([]model.FrontendKey{key})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, m)
	after, err := m.RowsOf([]model.FrontendKey{key})
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Pending) < 10 || len(after.Pending) > 0 {
		t.Errorf("%d rows pending before and %v after", len(before.Pending), after.Pending)
	}
	if !slices.ContainsFunc(before.Pending, func(s string) bool { return strings.HasPrefix(s, "servers: -A -t 10.96.0.10:80") }) {
		t.Errorf("the server is not pending: %v", before.Pending)
	}
	want := "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.1:8080 -m -w 1\n-a -t 10.96.0.10:80 -r 10.244.1.1:8080 -m -w 1\n"
	if diff := cmp.Diff(want, after.Desired["servers"]); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	for _, lacks := range []string{"fd00:", "# ip6"} {
		if strings.Contains(after.Desired["rules"]+after.Desired["sets"]+after.Desired["addresses"], lacks) {
			t.Errorf("rows of the other family")
		}
	}
}

// The rows that are found after a complete write are the desired rows.
func TestWriteFound(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web, dual)
	apply(t, m)
	reader := begin(t, k)
	for _, kind := range describe.Kinds() {
		var want, got strings.Builder
		if err := m.WriteRows(&want, kind); err != nil {
			t.Fatal(err)
		}
		if err := reader.WriteFound(t.Context(), &got, kind); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" || got.String() == "" {
			t.Errorf("%s (-wanted +found):\n%s", kind, diff)
		}
	}
	if err := reader.WriteFound(t.Context(), &strings.Builder{}, "pods"); err == nil {
		t.Error("pods were found")
	}
}
