package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

const (
	netfilter = "net.netfilter.nf_conntrack_"
	stockTCP  = 15 * time.Minute // as IPVS begins
)

// limits returns the limits of a kernel as it begins, with some changes.
func limits(change func(*sysctl.IdleLimits)) sysctl.IdleLimits {
	l := sysctl.IdleLimits{
		Established: 5 * 24 * time.Hour, FinWait: 2 * time.Minute, UDPStream: 2 * time.Minute,
		Keepalive: 2 * time.Hour, Interval: 75 * time.Second, Probes: 9,
	}
	if change != nil {
		change(&l)
	}
	return l
}

// idle puts the files of a stock kernel on the node.
func (n node) idle(t *testing.T) {
	t.Helper()
	for key, value := range map[string]string{
		netfilter + "tcp_timeout_established": "432000", netfilter + "tcp_timeout_fin_wait": "120", netfilter + "udp_timeout_stream": "120",
		"net.ipv4.tcp_keepalive_time": "7200", "net.ipv4.tcp_keepalive_intvl": "75", "net.ipv4.tcp_keepalive_probes": "9",
	} {
		n.Sysctl(t, key, value)
	}
}

func TestIdleCheck(t *testing.T) {
	const key = "net.ipv4.tcp_keepalive_time"
	for _, tt := range []struct {
		name   string
		change func(*testing.T, node)
		tcp    time.Duration
		err    error
		state  diagnosis.State
		detail string
	}{
		{name: "as the kernel begins", tcp: stockTCP, state: diagnosis.Warn, detail: "2h0m0s"},
		{name: "long enough", tcp: 2 * time.Hour, state: diagnosis.OK},
		{name: "no answer", err: errors.New("no answer"), state: diagnosis.Failed, detail: "no answer"},
		{name: "no IPVS", err: diagnosis.Lacking(errors.New("no family")), state: diagnosis.Lacks, detail: "no family"},
		{name: "a key that cannot be read", change: func(t *testing.T, n node) { n.Remove(t, nodefs.SysctlFile(key)); n.Block(t, key) },
			tcp: stockTCP, state: diagnosis.Failed, detail: "read sysctl " + key},
		{name: "a key without a number", change: func(t *testing.T, n node) { n.Sysctl(t, key, "-1") }, tcp: stockTCP, state: diagnosis.Failed, detail: "read sysctl " + key},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.idle(t)
			if tt.change != nil {
				tt.change(t, n)
			}
			question := n.host(t).IdleCheck(func(_ context.Context, l sysctl.IdleLimits) (time.Duration, error) {
				if l != limits(nil) {
					t.Errorf("asked with %+v", l)
				}
				return tt.tcp, tt.err
			})
			v := diagnosis.Run(t.Context(), []diagnosis.Check{question})[0]
			if v.State != tt.state || !strings.Contains(v.Detail, tt.detail) || (v.Fix == "") != (v.State == diagnosis.OK) {
				t.Errorf("%+v, want %s and %q", v, tt.state, tt.detail)
			}
		})
	}
}
