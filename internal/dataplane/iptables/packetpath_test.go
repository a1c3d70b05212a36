package iptables_test

import (
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

// ends are those of packets from a pod, from the host and from outside.
func ends(m *iptables.Mode, p dataplane.Packet) string {
	var out []string
	for _, o := range dataplane.Origins() {
		p.Origin = o
		w := m.PacketPath(p)
		text := string(o) + " " + string(w.End)
		if w.SourceKept {
			text += " with its source"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestPacketPath(t *testing.T) {
	m := iptables.New(zap.NewNop(), config(), iptables.Deps{})
	far := build.Slice("web", "web-far", build.Target("", 8080), build.Endpoints(build.Ready("10.244.1.1", "far")))
	here := build.Slice("web", "web-here", build.Target("", 8080), build.Endpoints(build.Ready("10.244.0.1", "here")))
	external := []func(*model.Service){build.IPs("10.96.0.1"), build.Port("", 80), balancer("203.0.113.1")}
	for _, tt := range []struct {
		name   string
		svc    []func(*model.Service)
		slices []model.Slice
		kind   model.Kind
		source string
		want   string
	}{
		{"cluster IP", external, []model.Slice{far}, model.KindClusterIP, "", "pod forwarded with its source, host forwarded, outside forwarded"},
		{"no endpoints", external, nil, model.KindClusterIP, "", "pod refused, host refused, outside refused"},
		{"load balancer", external, []model.Slice{far}, model.KindLoadBalancer, "", "pod forwarded, host forwarded, outside forwarded"},
		{"load balancer without endpoints", external, nil, model.KindLoadBalancer, "", "pod refused, host dropped, outside refused"},
		{"Local", append(external, externalLocal()), []model.Slice{here, far}, model.KindLoadBalancer, "",
			"pod forwarded with its source, host forwarded, outside forwarded with its source"},
		{"Local, no endpoint here", append(external, externalLocal()), []model.Slice{far}, model.KindLoadBalancer, "",
			"pod forwarded with its source, host forwarded, outside dropped"},
		{"internal policy Local, no endpoint here", append(external, build.InternalLocal()), []model.Slice{far}, model.KindClusterIP, "",
			"pod dropped, host dropped, outside dropped"},
		{"source in range", append(external, ranges("198.51.100.0/24")), []model.Slice{far}, model.KindLoadBalancer, "198.51.100.7",
			"pod forwarded, host forwarded, outside forwarded"},
		{"source out of range", append(external, ranges("198.51.100.0/24")), []model.Slice{far}, model.KindLoadBalancer, "192.0.2.7",
			"pod dropped, host dropped, outside dropped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := compile(build.Service("web", tt.svc...), tt.slices...)
			packet := dataplane.Packet{}
			for i, f := range p.Frontends {
				if f.Kind == tt.kind {
					packet.To = f
				}
				if f.Kind == model.KindClusterIP {
					packet.Detour = &p.Frontends[i]
				}
			}
			if tt.source != "" {
				packet.Source = netip.MustParseAddr(tt.source)
			}
			if got := ends(m, packet); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Chains that a walk names are those of the rows, and what is found after everything was
// written is what was wanted, but for the order in dispatch chains.
func TestRowsOfAndFound(t *testing.T) {
	k := newKernel()
	m := begin(t, k, everyKind()...)
	var keys []model.FrontendKey
	for _, p := range everyKind() {
		for _, f := range p.Frontends {
			keys = append(keys, f.Key)
			rows, err := m.RowsOf([]model.FrontendKey{f.Key})
			if err != nil || len(rows.Pending) == 0 {
				t.Fatalf("%s: rows %+v, error %v", f.Key, rows, err)
			}
			for _, step := range m.PacketPath(dataplane.Packet{Origin: dataplane.FromOutside, To: f}).Steps {
				for _, word := range strings.FieldsFunc(step, func(r rune) bool { return strings.ContainsRune(" :,()", r) }) {
					if strings.HasPrefix(word, "KUBE-") && !strings.HasSuffix(word, "…") && !strings.Contains(rows.Desired["rules"], word) {
						t.Errorf("%s: step %q: no chain %s in\n%s", f.Key, step, word, rows.Desired["rules"])
					}
				}
			}
		}
	}
	apply(t, m)
	if rows, err := m.RowsOf(keys); err != nil || len(rows.Pending) > 0 {
		t.Errorf("pending %v, error %v", rows.Pending, err)
	}
	var want, got strings.Builder
	if err := m.WriteRows(&want, "rules"); err != nil {
		t.Fatal(err)
	}
	if err := begin(t, k).WriteFound(t.Context(), &got, "rules"); err != nil {
		t.Fatal(err)
	}
	if a, b := len(strings.Split(want.String(), "\n")), len(strings.Split(got.String(), "\n")); a != b || a < 100 {
		t.Errorf("%d lines wanted, %d found", a, b)
	}
	if !iptables.Dispatches("nat", "KUBE-SERVICES") || iptables.Dispatches("nat", "KUBE-POSTROUTING") {
		t.Error("dispatch chains are not those where order means nothing")
	}
}
