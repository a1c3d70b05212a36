package ipvs_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Ranges that are excluded while the mode runs save what is in them, and ranges that
// are given back do not.
func TestExcludedRangesChange(t *testing.T) {
	hands := []netip.Prefix{netip.MustParsePrefix("10.96.7.0/24")}
	for _, tt := range []struct {
		name  string
		steps [][]netip.Prefix
		stays bool
	}{
		{"excluded", [][]netip.Prefix{hands}, true},
		{"given back", [][]netip.Prefix{hands, nil}, false},
		{"another", [][]netip.Prefix{{netip.MustParsePrefix("10.96.8.0/24")}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel()
			theirs := vserver.ServerKey{Addr: netip.MustParseAddr("10.96.7.7"), Port: 443, Protocol: 6}
			mustWrite(t, k.servers.WriteServers(t.Context(), []vserver.ServerChange{{Op: vserver.Add, Key: theirs, Server: vserver.Server{Scheduler: "wlc"}}}))
			if _, err := k.links.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			k.links.AddByHand(theirs.Addr)
			m := begin(t, k, service("web", "10.96.0.1", "10.244.0.1:80"))
			for _, ranges := range tt.steps {
				if err := m.Exclude(t.Context(), ranges); err != nil {
					t.Fatal(err)
				}
			}
			m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}) // a server, then its address
			apply(t, m)
			if got := strings.Contains(k.servers.String(), "10.96.7.7:443"); got != tt.stays || !m.CarriesServices() {
				t.Errorf("stays %t, want %t; serves %t", got, tt.stays, m.CarriesServices())
			}
			if !strings.Contains(k.servers.String(), "10.96.0.1:80") {
				t.Errorf("the Service is not served:\n%s", k.servers)
			}
		})
	}
}

// A kernel that cannot be read leaves the ranges as they were.
func TestExcludedRangesStayAfterAnError(t *testing.T) {
	k := newKernel()
	m := begin(t, k)
	if m.CarriesServices() {
		t.Error("an empty kernel serves")
	}
	k.failAt = len(k.calls) + 1
	if err := m.Exclude(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}); !errors.Is(err, errPlanned) {
		t.Fatalf("error %v", err)
	}
	m.Set(service("web", "10.96.0.1", "10.244.0.1:80"))
	apply(t, m)
	if begun := begin(t, k); !begun.CarriesServices() {
		t.Error("what the mode wrote is not there")
	}
	m.Set(gone("web"))
	apply(t, m)
	if left := k.servers.String(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}
