package packet

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// An idle connection, with timeouts of seconds instead of minutes: IPVS drops it earlier than
// connection tracking does, and its next request fails. With the recommended profile IPVS keeps
// it for as long.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const tracked, idle = "40s", 12 * time.Second
	for _, tt := range []struct {
		name, timeout string
		lives, warned bool
	}{
		{"shorter than tracking", "5s", false, true},
		{"recommended", "recommended", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.web(t)
			n := newAgent(t, w.node, "--ipvs-tcp-timeout", tt.timeout, "--conntrack-tcp-timeout-established", tracked)
			n.write(t, s)
			n.start(t)
			conn := w.pod2.hold(t, backend.TCP, s.vip.v4).conn
			time.Sleep(idle) // nothing must happen in this time
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := conn.Ask(ctx); (err == nil) != tt.lives {
				t.Errorf("after %s without a packet: %v", idle, err)
			}
			if warned := strings.Contains(n.output.String(), "the IPVS timeout of TCP connections is too short"); warned != tt.warned {
				t.Errorf("warned: %v, want %v", warned, tt.warned)
			}
		})
	}
}
