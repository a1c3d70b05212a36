package plan_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/plan"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

func TestFrontendsOfAService(t *testing.T) {
	for _, tt := range []struct {
		name   string
		svc    *model.Service
		slices []model.Slice
		want   []string
	}{
		{
			name: "several ports on one address, sorted by number",
			svc:  build.Service("web", build.IPs("10.96.0.1"), build.Port("https", 443), build.Port("http", 80)),
			slices: []model.Slice{build.Slice("web", "a", build.Target("http", 8080), build.Target("https", 8443),
				build.Endpoints(ready("10.244.0.1", "far")))},
			want: []string{
				"10.96.0.1:80/tcp -> 10.244.0.1:8080",
				"10.96.0.1:443/tcp -> 10.244.0.1:8443",
			},
		},
		{
			name: "one number over three protocols",
			svc: build.Service("dns", build.IPs("10.96.0.10"), build.PortOver(model.SCTP, "s", 53),
				build.PortOver(model.UDP, "u", 53), build.PortOver(model.TCP, "t", 53)),
			slices: []model.Slice{build.Slice("dns", "a", build.TargetOver(model.UDP, "u", 5353),
				build.TargetOver(model.TCP, "t", 5354), build.TargetOver(model.SCTP, "s", 5355),
				build.Endpoints(ready("10.244.0.1", "far")))},
			want: []string{
				"10.96.0.10:53/tcp -> 10.244.0.1:5354",
				"10.96.0.10:53/udp -> 10.244.0.1:5353",
				"10.96.0.10:53/sctp -> 10.244.0.1:5355",
			},
		},
		{
			name: "dual stack",
			svc:  build.Service("web", build.IPs("fd00:96::1", "10.96.0.1"), build.Port("http", 80)),
			slices: []model.Slice{
				webSlice("a", ready("10.244.0.1", "here")),
				webSlice("b", ready("fd00:244::1", "here")),
			},
			want: []string{
				"10.96.0.1:80/tcp -> 10.244.0.1:8080",
				"10.96.0.1:80/tcp hairpin 10.244.0.1:8080",
				"[fd00:96::1]:80/tcp -> [fd00:244::1]:8080",
				"[fd00:96::1]:80/tcp hairpin [fd00:244::1]:8080",
			},
		},
		{
			name: "a Service without endpoints still answers",
			svc:  web(),
			want: []string{
				"10.96.0.1:80/tcp ->",
				"note: 10.96.0.1:80/tcp: no endpoints: no backends",
			},
		},
		{
			name: "a bad address does not take the good one with it",
			svc:  web(build.IPs("fe80::1")),
			slices: []model.Slice{
				webSlice("a", ready("10.244.0.1", "far")),
			},
			want: []string{
				"10.96.0.1:80/tcp -> 10.244.0.1:8080",
				"note: cluster IP fe80::1 is not served: a link-local address",
			},
		},
		{
			name:   "a number listed twice goes to the first name",
			svc:    web(build.Port("admin", 80)),
			slices: []model.Slice{build.Slice("web", "a", build.Target("admin", 9), build.Endpoints(ready("10.244.0.1", "far")))},
			want: []string{
				"10.96.0.1:80/tcp -> 10.244.0.1:9",
				`note: port 80/tcp is listed twice: "http" is not served`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, compile(tt.svc, tt.slices...), tt.want...)
		})
	}
}

// A Service has at most so many frontends. The stronger kinds are served first, and a note counts the rest.
func TestFrontendsOfAServiceAreBounded(t *testing.T) {
	opts := here
	opts.MaxFrontends = 5
	svc := web(build.Port("https", 443), externalIPs("198.51.100.1", "198.51.100.2"))
	svc.Ingress = []model.Ingress{{Addr: netip.MustParseAddr("203.0.113.1")}}
	p := plan.New(opts).Compile(svc.ID, svc, nil)
	var got []string
	for _, f := range p.Frontends {
		got = append(got, f.Kind.String()+" "+f.Key.String())
	}
	want := []string{
		"ClusterIP 10.96.0.1:80/tcp", "ClusterIP 10.96.0.1:443/tcp", "ExternalIP 198.51.100.1:80/tcp",
		"LoadBalancer 203.0.113.1:80/tcp", "LoadBalancer 203.0.113.1:443/tcp",
	}
	if !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
	if note := "3 of its frontends are not served: a Service has 5 at most (--service-frontends)"; p.Beyond != (model.Beyond{Frontends: 3}) || !slices.Contains(model.NoteTexts(p.Notes), note) {
		t.Errorf("%+v beyond, notes %q", p.Beyond, p.Notes)
	}
}

// TestSourceRangesOfAServiceAreBounded: clients in those beyond are not admitted. No family loses all
// of its ranges, which would admit all clients.
func TestSourceRangesOfAServiceAreBounded(t *testing.T) {
	opts := here
	opts.MaxRanges = 2
	svc := web()
	svc.ClusterIPs = append(svc.ClusterIPs, netip.MustParseAddr("fd00:96::1"))
	svc.Ingress = []model.Ingress{{Addr: netip.MustParseAddr("203.0.113.1")}, {Addr: netip.MustParseAddr("2001:db8::1")}}
	for _, s := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fd00::/8"} {
		svc.SourceRanges = append(svc.SourceRanges, netip.MustParsePrefix(s))
	}
	p := plan.New(opts).Compile(svc.ID, svc, nil)
	got := map[string][]netip.Prefix{}
	for _, f := range p.Frontends {
		if f.Kind == model.KindLoadBalancer {
			got[f.Key.Addr.String()] = f.SourceRanges
		}
	}
	want := map[string][]netip.Prefix{"203.0.113.1": svc.SourceRanges[:2], "2001:db8::1": svc.SourceRanges[3:]}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("admitted %v, want %v", got, want)
	}
	if note := "clients in 1 of its source ranges are not admitted: a Service has 2 of a family at most (--service-source-ranges)"; p.Beyond != (model.Beyond{SourceRanges: 1}) || !slices.Contains(model.NoteTexts(p.Notes), note) {
		t.Errorf("%+v beyond, notes %q", p.Beyond, p.Notes)
	}
}

// TestRowsOfAServiceAreBounded: with many endpoints or source ranges a Service has fewer frontends.
func TestRowsOfAServiceAreBounded(t *testing.T) {
	opts := here
	opts.MaxRows = 7
	svc := web(externalIPs("198.51.100.1", "198.51.100.2"))
	p := plan.New(opts).Compile(svc.ID, svc, []model.Slice{
		webSlice("web-1", build.Ready("10.244.0.1", "a"), build.Ready("10.244.0.2", "a"), build.Ready("10.244.0.3", "a")),
	})
	var got []string
	for _, f := range p.Frontends {
		got = append(got, fmt.Sprint(f.Kind, " ", f.Key, " ", len(f.Backends)))
	}
	if want := []string{"ClusterIP 10.96.0.1:80/tcp 3", "ExternalIP 198.51.100.1:80/tcp 3"}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
	if note := "1 of its frontends are not served: with its endpoints and source ranges it may have 2 at most (--service-rows)"; !slices.Contains(model.NoteTexts(p.Notes), note) {
		t.Errorf("notes %q, want %q", p.Notes, note)
	}
}
