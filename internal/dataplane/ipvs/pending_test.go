package ipvs_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// pendingTexts prints pending rows, but for those of sets, chains and jumps.
func pendingTexts(tables []dataplane.PendingTable) []string {
	var out []string
	for _, t := range tables {
		if slices.Contains([]string{"sets", "chains", "jumps"}, t.Table) {
			continue
		}
		var rows []string
		for _, r := range t.Rows {
			rows = append(rows, fmt.Sprintf("%s %s: %s", t.Table, r.Op, r.Text()))
		}
		slices.Sort(rows)
		out = append(out, rows...)
	}
	return out
}

// Before the first pass all is pending, in the words of the operator's tools, and after it nothing.
func TestPendingInWords(t *testing.T) {
	k := newKernel()
	m := begin(t, k, web)
	want := []string{
		"members add: ipset add KUBE-6-NODE-PORT-IPS fd00:192::1",
		"members add: ipset add KUBE-CLUSTER-IP 10.96.0.10,tcp:80",
		"members add: ipset add KUBE-IPVS-IPS 10.96.0.10",
		"members add: ipset add KUBE-LOOP-BACK 10.244.0.1,tcp:8080,10.244.0.1",
		"members add: ipset add KUBE-NODE-PORT-IPS 192.168.0.1",
		"members add: ipset add KUBE-NODE-PORT-IPS 192.168.0.2",
		"servers add: ipvsadm -A -t 10.96.0.10:80 -s rr",
		"destinations add: ipvsadm -a -t 10.96.0.10:80 -r 10.244.0.1:8080 -m -w 1",
		"destinations add: ipvsadm -a -t 10.96.0.10:80 -r 10.244.1.1:8080 -m -w 1",
		"addresses add: ip addr add 10.96.0.10/32 dev kube-ipvs0",
	}
	if diff := cmp.Diff(want, pendingTexts(m.Pending(1000))); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	for _, table := range m.Pending(1) {
		if len(table.Rows) != 1 {
			t.Errorf("%s has %d rows, want 1", table.Table, len(table.Rows))
		}
	}
	apply(t, m)
	if got := m.Pending(1000); len(got) != 0 {
		t.Errorf("in place, and %+v pending", got)
	}
	m.Set(gone("web"))
	got := strings.Join(pendingTexts(m.Pending(1000)), "\n")
	for _, want := range []string{
		"members delete: ipset del KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "servers delete: ipvsadm -D -t 10.96.0.10:80",
		"destinations delete: ipvsadm -d -t 10.96.0.10:80 -r 10.244.0.1:8080", "addresses delete: ip addr del 10.96.0.10/32 dev kube-ipvs0",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("pending lacks %q:\n%s", want, got)
		}
	}
}

// A draining destination is listed with its remaining time, one in slow start with its weight.
func TestMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		m := begin(t, k, slow(first, third))
		apply(t, m)
		k.busy(third)
		set(t, m, slow(first, second))
		wait(t, m, 5*time.Second)
		list := &dataplane.MovingList{Most: 10}
		m.Moving(list)
		var got []string
		for _, r := range list.Rows {
			got = append(got, fmt.Sprintf("%s %s climbs=%t weight %d of %d, %d, %s since, %s left",
				r.Service, r.Backend, r.Climbs, r.Weight, r.Full, r.Connections, time.Since(r.Since), time.Until(r.Until)))
		}
		slices.Sort(got)
		want := []string{
			"default/web 10.244.1.1:8080 climbs=true weight 25 of 100, 0, 5s since, 15s left",
			"default/web 10.244.2.1:8080 climbs=false weight 0 of 0, 1, 5s since, 25s left",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("moving (-want +got):\n%s", diff)
		}
		list = &dataplane.MovingList{Most: 10, To: func(to netip.AddrPort) bool { return to.String() == third }}
		m.Moving(list)
		if len(list.Rows) != 1 || list.More != 0 {
			t.Errorf("%d drain and %d more, want 1", len(list.Rows), list.More)
		}
		list = &dataplane.MovingList{Most: 10, At: func(_ model.FrontendKey, id model.ServiceID) bool { return id.Name != "web" }}
		m.Moving(list)
		if len(list.Rows)+list.More != 0 {
			t.Errorf("of another Service %d rows and %d more", len(list.Rows), list.More)
		}
		list = &dataplane.MovingList{Most: 1}
		m.Moving(list)
		if len(list.Rows) != 1 || list.More != 1 {
			t.Errorf("%d rows and %d more, want 1 and 1", len(list.Rows), list.More)
		}
	})
}
