package plan_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestNotesOnAnEmptyFrontend(t *testing.T) {
	v6 := build.Service("web", build.IPs("2001:db8::1"), build.Port("http", 80))
	fqdn := webSlice("f")
	fqdn.Family = 0
	placeholder := build.Slice("web", "a")
	const v4key, v6key = "10.96.0.1:80/tcp", "[2001:db8::1]:80/tcp"

	for _, tt := range []struct {
		name   string
		svc    *model.Service
		slices []model.Slice
		key    string
		want   string
	}{
		{"no slices", web(), nil, v4key, v4key + ": no endpoints: no backends"},
		{"a slice without ports and endpoints, as Kubernetes keeps for a Service without pods", web(), []model.Slice{placeholder}, v4key, v4key + ": no endpoints: no backends"},
		{"the other family", v6, []model.Slice{webSlice("a", ready(a1, "far"))}, v6key, "IPv6 address 2001:db8::1 has only IPv4 slices: no backends"},
		{"the other family, behind another Service", v6, []model.Slice{build.Slice("shop", "a", build.Endpoints(ready(a1, "far")))}, v6key, v6key + ": no endpoints: no backends"},
		{"names instead of addresses", v6, []model.Slice{fqdn, webSlice("a", ready(a1, "far")), webSlice("b")}, v6key, "IPv6 address 2001:db8::1 has only FQDN and IPv4 slices: no backends"},
		{"no endpoint ready", web(), []model.Slice{webSlice("a", unready(a1, "far"), dead(a2, "far"))}, v4key, v4key + ": none of its endpoints is ready (of 2): no backends"},
		{"no endpoint here", web(build.InternalLocal()), []model.Slice{webSlice("a", ready(a1, "far"))}, v4key, v4key + ": internalTrafficPolicy is Local and no endpoint on this node is ready: no backends"},
		{"no endpoint at all under Local", web(build.InternalLocal()), nil, v4key, v4key + ": no endpoints: no backends"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, compile(tt.svc, tt.slices...), tt.key+" ->", "note: "+tt.want)
		})
	}
}

func TestOneCauseIsOneNote(t *testing.T) {
	svc := build.Service("web", build.IPs("2001:db8::1"), build.Port("http", 80), build.Port("https", 443))
	expect(t, compile(svc, webSlice("a", ready(a1, "far"))),
		"[2001:db8::1]:80/tcp ->",
		"[2001:db8::1]:443/tcp ->",
		"note: IPv6 address 2001:db8::1 has only IPv4 slices: no backends")
}

func TestNotesFromTheSources(t *testing.T) {
	svc := web()
	svc.Problems = []string{"spec.clusterIPs[1]: \"x\" is not an address"}
	ours := webSlice("a", ready(a1, "far"))
	ours.Problems = []string{"endpoints[3].addresses[0]: \"y\" is not an address"}
	other := build.Slice("shop", "b")
	other.Problems = []string{"not ours"}

	expect(t, compile(svc, other, ours),
		"10.96.0.1:80/tcp -> 10.0.0.1:8080",
		`note: EndpointSlice default/a: endpoints[3].addresses[0]: "y" is not an address`,
		`note: spec.clusterIPs[1]: "x" is not an address`)
}
