package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/healthcheck"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// TestDeniedIPTables: an agent without rights is told to get them, and not to install tools.
func TestDeniedIPTables(t *testing.T) {
	missing := fmt.Errorf("no iptables tools found: %w", rules.ErrUnsupported)
	for _, tt := range []struct {
		err    error
		remedy string
	}{
		{missing, "install iptables"},
		{errors.Join(missing, os.ErrPermission), "run as root"},
	} {
		got := withPermissionHint(withIPTablesHint(tt.err), "CAP_NET_ADMIN and CAP_NET_RAW").Error()
		if strings.Count(got, "remedy: ") != 1 || !strings.Contains(got, "remedy: "+tt.remedy) {
			t.Errorf("%q, want the remedy to %s", got, tt.remedy)
		}
	}
}

// TestHealthPortsFollowTheSelection: one socket opens a health-check port everywhere, or it is open on
// the addresses of NodePorts.
func TestHealthPortsFollowTheSelection(t *testing.T) {
	for _, tt := range []struct {
		name      string
		selection []string
		addrs     []string
		want      []string
	}{
		{"everywhere", nil, []string{"127.0.0.1"}, []string{"0.0.0.0"}},
		{"selected", []string{"127.0.0.0/8"}, []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{"selected, none there", []string{"127.0.0.0/8"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := config.Defaults()
			s.Proxy.NodePortAddresses = tt.selection
			c, err := s.Check("node-a")
			if err != nil {
				t.Fatal(err)
			}
			h := newHealthPorts(zap.NewNop(), wiring.Static(c), healthcheck.Options{})
			var addrs []netip.Addr
			for _, a := range tt.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
			h.Listen(addrs)
			if got := listening(t, h); !slices.Equal(got, tt.want) {
				t.Errorf("listens on %v, want %v", got, tt.want)
			}
		})
	}
}

// listening runs the ports for a Service and returns where they are opened.
func listening(t *testing.T, h healthPorts) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	h.Set(model.ServiceID{Name: "web"}, model.HealthCheck{Port: port, IPv4: model.LocalEndpoints{Served: true, Ready: 1}})
	var status []healthcheck.PortStatus
	poll.Until(t, "the status of the port", func() bool {
		status = h.Status() // lists a port that no address has open, too
		return len(status) > 0
	})
	var out []string
	for _, s := range status {
		if s.Listening {
			out = append(out, s.Address.Addr().String())
		}
	}
	return out
}
