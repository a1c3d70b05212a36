package sysctl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
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

const (
	stockTCP = 15 * time.Minute                 // of IPVS
	gaveUp   = 2*time.Hour + 9*75*time.Second   // the stock keepalive
	margin   = 5 * time.Minute                  // beyond it
	most     = 24 * 24 * time.Hour              // a value that every kernel takes
	fin, udp = 2 * time.Minute, 2 * time.Minute // of connection tracking
)

func TestRecommendedIdleTimes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*sysctl.IdleLimits)
		want   sysctl.IdleTimes
	}{
		{"as the kernel begins", nil, sysctl.IdleTimes{TCP: gaveUp + margin, TCPFin: fin, UDP: udp}},
		{"tracked for a day, as the agent sets it", func(l *sysctl.IdleLimits) { l.Established = 24 * time.Hour }, sysctl.IdleTimes{TCP: gaveUp + margin, TCPFin: fin, UDP: udp}},
		{"tracked for an hour", func(l *sysctl.IdleLimits) { l.Established = time.Hour }, sysctl.IdleTimes{TCP: time.Hour, TCPFin: fin, UDP: udp}},
		{"a slower keepalive", func(l *sysctl.IdleLimits) { l.Keepalive, l.Probes = 4*time.Hour, 2 },
			sysctl.IdleTimes{TCP: 4*time.Hour + 150*time.Second + margin, TCPFin: fin, UDP: udp}},
		{"a quicker one, which pods do not have", func(l *sysctl.IdleLimits) { l.Keepalive = time.Minute }, sysctl.IdleTimes{TCP: gaveUp + margin, TCPFin: fin, UDP: udp}},
		{"other times of connection tracking", func(l *sysctl.IdleLimits) { l.FinWait, l.UDPStream = 30*time.Second, 5*time.Minute },
			sysctl.IdleTimes{TCP: gaveUp + margin, TCPFin: 30 * time.Second, UDP: 5 * time.Minute}},
		{"no connection tracking", func(l *sysctl.IdleLimits) { l.Established, l.FinWait, l.UDPStream = 0, 0, 0 }, sysctl.IdleTimes{TCP: gaveUp + margin}},
		{"nothing is told", func(l *sysctl.IdleLimits) { *l = sysctl.IdleLimits{} }, sysctl.IdleTimes{TCP: gaveUp + margin}},
		{"the largest that can be set", func(l *sysctl.IdleLimits) {
			const long, slow = (1<<31 - 1) * time.Second, 32767 * time.Second
			*l = sysctl.IdleLimits{Established: long, FinWait: long, UDPStream: long, Keepalive: slow, Interval: slow, Probes: 127}
		}, sysctl.IdleTimes{TCP: most, TCPFin: most, UDP: most}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := limits(tt.change)
			got := l.Recommended()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("profile (-want +got):\n%s", diff)
			}
			if err := l.TooShort(got.TCP); err != nil {
				t.Errorf("what is recommended is not enough: %v", err)
			}
		})
	}
}

func TestIdleTimesTooShort(t *testing.T) {
	const keepalive = "a keepalive probe would be sent after 2h0m0s (net.ipv4.tcp_keepalive_time)"
	const tracked = "connection tracking would keep it for 1h0m0s (net.netfilter.nf_conntrack_tcp_timeout_established)"
	hour := func(l *sysctl.IdleLimits) { l.Established = time.Hour }
	for _, tt := range []struct {
		name   string
		change func(*sysctl.IdleLimits)
		tcp    time.Duration
		want   string // "" for enough
	}{
		{"as the kernel begins", nil, stockTCP, "after 15m0s without telling client or server: " + keepalive},
		{"a second less than keepalive", nil, 2*time.Hour - time.Second, keepalive},
		{"as long as keepalive", nil, 2 * time.Hour, ""},
		{"tracked for less", hour, stockTCP, tracked},
		{"as long as it is tracked", hour, time.Hour, ""},
		{"a quick keepalive", func(l *sysctl.IdleLimits) { l.Keepalive = 10 * time.Minute }, stockTCP, ""},
		{"no connection tracking", func(l *sysctl.IdleLimits) { l.Established = 0 }, stockTCP, keepalive},
		{"nothing is told", func(l *sysctl.IdleLimits) { *l = sysctl.IdleLimits{} }, stockTCP, keepalive},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := limits(tt.change).TooShort(tt.tcp)
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
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

func TestIdleLimitsAreRead(t *testing.T) {
	n := newNode(t)
	n.idle(t)
	got, err := n.handle(t).IdleLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(limits(nil), got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	n.Remove(t, nodefs.SysctlFile(netfilter+"tcp_timeout_established"))
	if got, err = n.handle(t).IdleLimits(t.Context()); err != nil || got.Established != 0 {
		t.Errorf("established %s, error %v for a key that is not there", got.Established, err)
	}
}
