package explain_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// story is the report of a Service with one frontend, of which everything is in the kernel.
func story(change func(s *agent.Report)) *agent.Report {
	s := &agent.Report{
		Asked: "default/web", Node: "node-a", Mode: "ipvs", Synced: true, Complete: true, Ready: true,
		Services: []agent.ServiceReport{{
			Name:      "default/web",
			Frontends: []agent.FrontendReport{{Key: "10.96.0.10:80/tcp", Kind: "ClusterIP", Asked: true, Bind: true, Backends: 1, Taking: 1}},
			Ports:     []model.PortStory{{Family: "IPv4", Port: 80, Protocol: "tcp", Endpoints: []model.EndpointStory{endpoint(1, "used", "")}}},
		}},
		Rows: dataplane.FrontendRows{Desired: map[string]string{"servers": "-A -t 10.96.0.10:80 -s rr\n"}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// relayed has a report ask about a node port on loopback.
func relayed(s *agent.Report, failure string) {
	s.Asked, s.Services[0].Frontends[0].Asked = "127.0.0.1:30080/tcp", false
	s.Services[0].Relays = []agent.RelayReport{{Key: "127.0.0.1:30080/tcp", Asked: true, Targets: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:80")}, Failure: failure}}
}

func TestRelayedPortsArePrinted(t *testing.T) {
	for _, all := range []bool{false, true} {
		for failure, want := range map[string]string{"": "127.0.0.1:30080/tcp  to 10.96.0.10:80\n", "in use": "127.0.0.1:30080/tcp  not open: in use\n"} {
			var b strings.Builder
			r := explain.New("127.0.0.1:30080/tcp", story(func(s *agent.Report) { relayed(s, failure) }), nil, there)
			if err := r.Write(&b, all); err != nil || !strings.Contains(b.String(), want) {
				t.Errorf("no line %q, error %v, in\n%s", want, err, b.String())
			}
		}
	}
}

func endpoint(n byte, use model.Use, why string) model.EndpointStory {
	return model.EndpointStory{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, n}), 80), Cluster: &model.Verdict{Use: use, Why: why, Weight: 1}}
}

// there is what the kernel has where nothing is wrong.
var there = explain.Found{Text: map[string]string{"servers": "-A -t 10.96.0.10:80 -s rr\n"}}

func TestVerdict(t *testing.T) {
	const well = "all is well: default/web is served at 1 frontend, 1 of 1 endpoint take new connections, and the kernel has all of it"
	for _, tt := range []struct {
		name   string
		change func(*agent.Report)
		found  explain.Found
		want   []string
	}{
		{"all is well", nil, there, []string{well}},
		{"other servers on the address", nil, explain.Found{
			Text: map[string]string{"servers": "-A -t 10.96.0.10:80 -s rr\n-A -t 10.96.0.10:443 -s rr\n"}, Others: func(string) bool { return true },
		}, []string{well}},
		{"sources are awaited", func(s *agent.Report) { s.Synced, s.Services = false, nil }, there,
			[]string{"the agent still waits for its sources: it does not know all Services yet", "no Service default/web is known to this node"}},
		{"rows that the kernel refuses", func(s *agent.Report) {
			s.Rows.Pending, s.LastError = []string{"servers: -A -t 10.96.0.10:80 -s rr"}, "add:\nno memory"
		}, there, []string{"1 row is not in the kernel yet (servers: -A -t 10.96.0.10:80 -s rr): add: no memory"}},
		{"rows of others that the kernel refuses", func(s *agent.Report) { s.LastError = "no memory" }, there,
			[]string{well, "the agent could not write rows of another Service: no memory"}},
		{"has just changed", func(s *agent.Report) { s.Services[0].Waiting = true }, there,
			[]string{"default/web has just changed: the agent has not compiled it yet"}},
		{"many endpoints for one reason", func(s *agent.Report) {
			p := &s.Services[0].Ports[0]
			for i := range 7 {
				p.Endpoints = append(p.Endpoints, endpoint(byte(10+i), model.UseKept, "not ready"))
			}
			s.Rows.Draining = []string{"10.96.0.10:80/tcp 10.244.0.99:80"}
		}, there, []string{
			strings.Replace(well, "1 of 1 endpoint", "1 of 8 endpoints", 1),
			"default/web: 7 endpoints (10.244.0.10:80, 10.244.0.11:80, 10.244.0.12:80, 10.244.0.13:80, 10.244.0.14:80 and 2 more) are not used: not ready",
			"draining, for the connections they have: 10.96.0.10:80/tcp 10.244.0.99:80",
		}},
		{"address that begins like an endpoint's", func(s *agent.Report) {
			s.Asked, s.Services[0].Frontends[0].Asked = "10.244.0.10", false
			s.Services[0].Ports[0].Endpoints[0] = endpoint(1, model.UseNone, "not ready")
		}, explain.Found{}, []string{
			"default/web does not answer at 10.244.0.10, but at 10.96.0.10:80/tcp",
			"default/web: endpoint 10.244.0.1:80 is not used: not ready",
		}},
		{"servers that nothing wants", nil, explain.Found{
			Text:   map[string]string{"servers": "-A -t 10.96.0.10:80 -s rr\n-A -t 10.96.0.10:443 -s rr\n-A -t 172.16.0.1:80 -s rr\n"},
			Others: func(string) bool { return false }, Ours: func(group string) bool { return strings.Contains(group, "10.96.") },
		}, []string{
			"orphaned virtual server -t 10.96.0.10:443 in the kernel: no Service has it, so the agent deletes it (-A -t 10.96.0.10:443 -s rr)",
			"foreign virtual server -t 172.16.0.1:80 in the kernel: no Service has it, and kube-ipvs does not touch it (-A -t 172.16.0.1:80 -s rr)",
		}},
		{"a node port on loopback", func(s *agent.Report) { relayed(s, "") }, there, []string{well}},
		{"one that another process has", func(s *agent.Report) { relayed(s, "address already in use") }, there,
			[]string{"node port 127.0.0.1:30080/tcp of default/web is not served: address already in use"}},
		{"nothing is to be served", func(s *agent.Report) {
			s.Services[0] = agent.ServiceReport{Name: "default/web", Skipped: "headless", Intended: true}
			s.Rows.Desired = nil
		}, explain.Found{Text: map[string]string{"servers": ""}}, []string{"all is well: no part of default/web is to be served", "default/web: no part of it is to be served: headless"}},
		{"left out as it asks", func(s *agent.Report) { s.Services[0].Remarks = []string{"an address is left to the load balancer"} }, there,
			[]string{well, "default/web: an address is left to the load balancer"}},
		{"a machine's address", func(s *agent.Report) {
			s.Asked, s.Services, s.Holder = "192.0.2.1:80", nil, "an address of this node, on link eth0"
		}, explain.Found{}, []string{"no Service is served at 192.0.2.1:80: it is an address of this node, on link eth0"}},
		{"the whole kernel is silent", nil, explain.Found{Failed: map[string]error{"servers": errors.New("not\nsupported")}},
			[]string{"virtual servers cannot be read of the kernel: not supported"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := explain.New("default/web", story(tt.change), nil, tt.found)
			if diff := cmp.Diff(tt.want, r.Verdict); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if r.OK != strings.HasPrefix(tt.want[0], "all is well") {
				t.Errorf("ok is %t", r.OK)
			}
		})
	}
}

// Each row that is missing shows once, with the size of its group, and whatever cannot be read is not called missing.
func TestMissingRows(t *testing.T) {
	s := story(func(s *agent.Report) {
		s.Rows.Desired["rules"] = "# ip\n*nat\n:KUBE-A - [0:0]\n:KUBE-B - [0:0]\n-A KUBE-A -j X\n-A KUBE-A -j Y\n-A KUBE-B -j X\nCOMMIT\n"
		s.Rows.Desired["sets"] = "add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n"
	})
	found := explain.Found{
		Text:   map[string]string{"servers": "-A -t 10.96.0.10:80 -s rr\n", "rules": "# ip\n*nat\n:KUBE-A - [0:0]\n-A KUBE-A -j X\nCOMMIT\n"},
		Failed: map[string]error{"sets": errors.New("busy")},
	}
	k := explain.New("default/web", s, nil, found).Kernel
	want := []explain.Rows{
		{Kind: "rules", Group: "ip nat KUBE-A", Rows: []string{"ip nat -A KUBE-A -j Y"}, Of: 3},
		{Kind: "rules", Group: "ip nat KUBE-B", Rows: []string{"ip nat -N KUBE-B", "ip nat -A KUBE-B -j X"}, Of: 2},
	}
	if diff := cmp.Diff(want, k.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if fmt.Sprint(k.Unread) != "[{sets busy}]" || len(k.Foreign) > 0 {
		t.Errorf("unread %v, foreign %v", k.Unread, k.Foreign)
	}
}
