package plan_test

import (
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

func TestSlicesAreJoined(t *testing.T) {
	foreign := webSlice("a", ready("10.244.9.9", "far"))
	foreign.Service = build.ID("other/web")
	fromFile := webSlice("a", ready("10.244.9.9", "far"))
	fromFile.Service.Origin = model.FromFile
	udp := build.Slice("web", "udp", build.TargetOver(model.UDP, "http", 8080), build.Endpoints(ready("10.244.9.9", "far")))
	eps := build.Endpoints(ready("10.244.0.1", "far"))
	noNumber := build.Slice("web", "any", build.Target("http", 0), eps)
	const key = "10.96.0.1:80/tcp"

	for _, tt := range []struct {
		name   string
		svc    *model.Service
		slices []model.Slice
		want   []string
	}{
		{
			name:   "several slices are one list",
			svc:    web(),
			slices: []model.Slice{webSlice("b", ready("10.244.0.2", "far")), webSlice("a", ready("10.244.0.3", "far"), ready("10.244.0.1", "far"))},
			want:   []string{key + " -> 10.244.0.1:8080 10.244.0.2:8080 10.244.0.3:8080"},
		},
		{
			name: "a named target port may be another number in another slice",
			svc:  web(),
			slices: []model.Slice{webSlice("a", ready("10.244.0.1", "far")),
				build.Slice("web", "b", build.Target("http", 9090), build.Endpoints(ready("10.244.0.2", "far")))},
			want: []string{key + " -> 10.244.0.1:8080 10.244.0.2:9090"},
		},
		{
			name: "one pod under two numbers is two backends",
			svc:  web(),
			slices: []model.Slice{webSlice("a", ready("10.244.0.1", "here")),
				build.Slice("web", "b", build.Target("http", 9090), build.Endpoints(ready("10.244.0.1", "here")))},
			want: []string{
				key + " -> 10.244.0.1:8080 10.244.0.1:9090",
				key + " hairpin 10.244.0.1:8080 10.244.0.1:9090",
			},
		},
		{
			name:   "an unnamed port joins an unnamed port",
			svc:    build.Service("web", build.IPs("10.96.0.1"), build.Port("", 80)),
			slices: []model.Slice{build.Slice("web", "a", build.Target("http", 1), build.Target("", 2), eps)},
			want:   []string{key + " -> 10.244.0.1:2"},
		},
		{
			name: "a port of another name is no target",
			svc:  web(), slices: []model.Slice{build.Slice("web", "a", build.Target("https", 8443), eps)},
			want: []string{key + " ->", `note: ` + key + `: no EndpointSlice has a port named "http" over tcp: no backends`},
		},
		{
			name: "nor is one of another protocol", svc: web(), slices: []model.Slice{udp},
			want: []string{key + " ->", `note: ` + key + `: no EndpointSlice has a port named "http" over tcp: no backends`},
		},
		{
			name: "nor is one without a number", svc: web(), slices: []model.Slice{noNumber},
			want: []string{key + " ->", `note: ` + key + `: no EndpointSlice has a port named "http" over tcp: no backends`},
		},
		{
			name: "slices of other Services and sources are passed over", svc: web(),
			slices: []model.Slice{foreign, fromFile},
			want:   []string{key + " ->", "note: " + key + ": no endpoints: no backends"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, compile(tt.svc, tt.slices...), tt.want...)
		})
	}
}

func TestAnAddressListedTwice(t *testing.T) {
	const addr = "10.244.0.1"
	for _, tt := range []struct {
		name          string
		first, second model.Endpoint
		want          []string
	}{
		{
			name:  "a running pod beats a terminating one",
			first: ready(addr, "far"), second: leaving(addr, "here"),
			want: []string{"10.96.0.1:80/tcp -> 10.244.0.1:8080"},
		},
		{
			name:  "even one that is not ready yet",
			first: unready(addr, "here"), second: leaving(addr, "far"),
			want: []string{
				"10.96.0.1:80/tcp ->", "10.96.0.1:80/tcp hairpin 10.244.0.1:8080",
				"note: 10.96.0.1:80/tcp: none of its endpoints is ready (of 1): no backends",
			},
		},
		{
			name:  "ready beats not ready",
			first: ready(addr, "far"), second: unready(addr, "here"),
			want: []string{"10.96.0.1:80/tcp -> 10.244.0.1:8080"},
		},
		{
			name:  "serving beats not serving",
			first: leaving(addr, "far"), second: dead(addr, "here"),
			want: []string{"10.96.0.1:80/tcp -> 10.244.0.1:8080"},
		},
		{
			name:  "else the later slice",
			first: ready(addr, "far"), second: zones(ready(addr, "here"), "z1"),
			want: []string{"10.96.0.1:80/tcp -> 10.244.0.1:8080", "10.96.0.1:80/tcp hairpin 10.244.0.1:8080"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := webSlice("a", tt.first), webSlice("b", tt.second)
			expect(t, compile(web(), a, b), tt.want...)
			expect(t, compile(web(), b, a), tt.want...)
		})
	}
}

// Within one slice nothing tells which entry is the later one. Any rule will do
// that does not look at the order: here the smaller value.
func TestAddressListedTwiceInOneSlice(t *testing.T) {
	far := ready("10.244.0.1", "far")
	for _, tt := range []struct {
		name          string
		first, second model.Endpoint
		want          string
	}{
		{"nodes differ", far, ready("10.244.0.1", "here"), "10.244.0.1:8080 10.244.0.2:8080"},
		{"zone hints differ", zones(far, "z1"), zones(far, "z2"), "10.244.0.1:8080"},
		{"node hints differ", nodes(far, "far"), nodes(far, "here"), "10.244.0.1:8080 10.244.0.2:8080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := nodes(zones(ready("10.244.0.2", "far"), "z2"), "far")
			want := "10.96.0.1:80/tcp -> " + tt.want
			expect(t, compile(web(), webSlice("a", tt.first, tt.second, other)), want)
			expect(t, compile(web(), webSlice("a", tt.second, tt.first, other)), want)
		})
	}
}

func TestEndpointAddressesThatNobodyCanBeSentTo(t *testing.T) {
	for _, tt := range []struct{ addr, why string }{
		{"127.0.0.1", "a loopback address"},
		{"169.254.169.254", "a link-local address"},
		{"fd00::1", "not an IPv4 address"},
	} {
		t.Run(tt.addr, func(t *testing.T) {
			slice := webSlice("a", ready("10.244.0.1", "far"), ready(tt.addr, "here"))
			expect(t, compile(web(), slice), "10.96.0.1:80/tcp -> 10.244.0.1:8080",
				"note: endpoint "+tt.addr+" of EndpointSlice default/a is not used: "+tt.why)
		})
	}
	t.Run("none at all", func(t *testing.T) {
		slice := webSlice("a", model.Endpoint{Addr: netip.Addr{}, Ready: true})
		slice.Family = model.IPv4
		expect(t, compile(web(), slice), "10.96.0.1:80/tcp ->",
			"note: 10.96.0.1:80/tcp: no endpoints: no backends",
			"note: endpoint invalid IP of EndpointSlice default/a is not used: not an IP address")
	})
}
