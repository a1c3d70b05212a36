package nodecheck

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

func TestPickupCheck(t *testing.T) {
	dr := inspect.FrontendRow{Scheduler: "mh (mh-fallback,mh-port)", Protocol: "tcp", Flags: []string{"bound", "dr"}}
	sctp, nat, other, lost := dr, dr, dr, dr
	sctp.Protocol, sctp.Flags, nat.Flags, other.Scheduler, lost.Winner = "sctp", []string{"tunnel"}, nil, "wlc", "test/other"
	const remedy = "on the host: sysctl -w net.ipv4.vs.sloppy_tcp=1; or mount its /proc/sys/net at /host/proc/sys/net"
	for _, tt := range []struct {
		name        string
		rows        []inspect.FrontendRow
		failed      error
		tcp         string // "" is a kernel without it
		state       diagnosis.State
		detail, fix string
	}{
		{"no agent", nil, errors.New("no such file"), "0", diagnosis.OK, "unknown: no agent answers", ""},
		{"no Service needs it", []inspect.FrontendRow{nat, other, lost}, nil, "0", diagnosis.OK, "no Service asks for it (mh with forward dr or tunnel)", ""},
		{"in force", []inspect.FrontendRow{dr, nat}, nil, "1", diagnosis.OK, "they continue here at 1 addresses and ports (mh with dr or tunnel)", ""},
		{"not in force", []inspect.FrontendRow{dr, sctp}, nil, "0", diagnosis.Warn,
			"2 addresses and ports have mh with dr or tunnel, but connections that another node began are reset: net.ipv4.vs.sloppy_tcp=0 must be 1", remedy},
		{"not in this kernel", []inspect.FrontendRow{dr}, nil, "", diagnosis.Warn,
			"1 addresses and ports have mh with dr or tunnel, but connections that another node began are reset: net.ipv4.vs.sloppy_tcp is not in this kernel", "load ip_vs, or use a kernel that has it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := nodefs.New(t)
			if tt.tcp != "" {
				n.Sysctl(t, "net.ipv4.vs.sloppy_tcp", tt.tcp)
				n.Sysctl(t, "net.ipv4.vs.sloppy_sctp", "1")
			}
			check := pickupCheck(n.Files(), func(context.Context) ([]inspect.FrontendRow, error) { return tt.rows, tt.failed })
			v := diagnosis.Run(t.Context(), []diagnosis.Check{check})[0]
			if diff := cmp.Diff([]string{string(tt.state), tt.detail, tt.fix}, []string{string(v.State), v.Detail, v.Fix}); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
