package build_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/build"
)

var netipValues = cmpopts.EquateComparable(netip.Addr{})

func TestService(t *testing.T) {
	born := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	got := build.Service("shop/web", build.IPs("10.96.0.1", "fd00::1"), build.Port("http", 80),
		build.PortOver(model.UDP, "dns", 53), build.Affinity(time.Hour), build.InternalLocal(), build.Created(born))
	want := &model.Service{
		ID:            model.ServiceID{Origin: model.FromKube, Namespace: "shop", Name: "web"},
		Created:       born,
		Type:          "ClusterIP",
		ClusterIPs:    []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")},
		Ports:         []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}, {Name: "dns", Protocol: model.UDP, Port: 53}},
		Affinity:      time.Hour,
		InternalLocal: true,
	}
	if diff := cmp.Diff(want, got, netipValues); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
}

func TestSlice(t *testing.T) {
	v6 := netip.MustParseAddr("fd00::2")
	got := build.Slice("web", "web-a", build.Target("http", 8080), build.TargetOver(model.UDP, "dns", 5353),
		build.Endpoints(build.ForNodes(build.ForZones(build.Ready("fd00::2", "a"), "z"), "n"),
			build.Unready("fd00::2", "b"), build.Leaving("fd00::2", ""), build.Dead("fd00::2", "")))
	want := model.Slice{
		ID:      model.SliceID{Origin: model.FromKube, Namespace: "default", Name: "web-a"},
		Service: build.ID("web"),
		Family:  model.IPv6,
		Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 5353}},
		Endpoints: []model.Endpoint{
			{Addr: v6, Node: "a", Ready: true, Serving: true, Hints: &model.Hints{Zones: []string{"z"}, Nodes: []string{"n"}}},
			{Addr: v6, Node: "b"},
			{Addr: v6, Serving: true, Terminating: true},
			{Addr: v6, Terminating: true},
		},
	}
	if diff := cmp.Diff(want, got, netipValues); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
}

func TestFamilyOfASlice(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  model.Slice
		want model.Family
	}{
		{"without endpoints", build.Slice("web", "a"), model.IPv4},
		{"of its endpoints", build.Slice("web", "a", build.Endpoints(build.Ready("fd00::1", ""))), model.IPv6},
		{"as it was told", build.Slice("web", "a", build.Family(model.IPv6)), model.IPv6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got.Family != tt.want {
				t.Errorf("family %s, want %s", tt.got.Family, tt.want)
			}
		})
	}
}
