package tune_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// limits are the defaults of the kernel with the given changes.
func limits(change func(*tune.IdleLimits)) tune.IdleLimits {
	l := tune.IdleLimits{
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
	most     = 24 * 24 * time.Hour              // what every kernel takes
	fin, udp = 2 * time.Minute, 2 * time.Minute // of connection tracking
)

func TestRecommendedIdleTimes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*tune.IdleLimits)
		want   tune.IdleTimes
	}{
		{"as the kernel begins", nil, tune.IdleTimes{TCP: gaveUp + margin, TCPFin: fin, UDP: udp}},
		{"tracked for a day, as the agent sets it", func(l *tune.IdleLimits) { l.Established = 24 * time.Hour }, tune.IdleTimes{TCP: gaveUp + margin, TCPFin: fin, UDP: udp}},
		{"tracked for an hour", func(l *tune.IdleLimits) { l.Established = time.Hour }, tune.IdleTimes{TCP: time.Hour, TCPFin: fin, UDP: udp}},
		{"a slower keepalive", func(l *tune.IdleLimits) { l.Keepalive, l.Probes = 4*time.Hour, 2 },
			tune.IdleTimes{TCP: 4*time.Hour + 150*time.Second + margin, TCPFin: fin, UDP: udp}},
		{"a quicker one, which pods do not have", func(l *tune.IdleLimits) { l.Keepalive = time.Minute }, tune.IdleTimes{TCP: gaveUp + margin, TCPFin: fin, UDP: udp}},
		{"other times of connection tracking", func(l *tune.IdleLimits) { l.FinWait, l.UDPStream = 30*time.Second, 5*time.Minute },
			tune.IdleTimes{TCP: gaveUp + margin, TCPFin: 30 * time.Second, UDP: 5 * time.Minute}},
		{"no connection tracking", func(l *tune.IdleLimits) { l.Established, l.FinWait, l.UDPStream = 0, 0, 0 }, tune.IdleTimes{TCP: gaveUp + margin}},
		{"nothing is told", func(l *tune.IdleLimits) { *l = tune.IdleLimits{} }, tune.IdleTimes{TCP: gaveUp + margin}},
		{"the largest that can be set", func(l *tune.IdleLimits) {
			const long, slow = (1<<31 - 1) * time.Second, 32767 * time.Second
			*l = tune.IdleLimits{Established: long, FinWait: long, UDPStream: long, Keepalive: slow, Interval: slow, Probes: 127}
		}, tune.IdleTimes{TCP: most, TCPFin: most, UDP: most}},
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
	hour := func(l *tune.IdleLimits) { l.Established = time.Hour }
	for _, tt := range []struct {
		name   string
		change func(*tune.IdleLimits)
		tcp    time.Duration
		want   string // "" for enough
	}{
		{"as the kernel begins", nil, stockTCP, "after 15m0s without telling client or server: " + keepalive},
		{"a second less than keepalive", nil, 2*time.Hour - time.Second, keepalive},
		{"as long as keepalive", nil, 2 * time.Hour, ""},
		{"tracked for less", hour, stockTCP, tracked},
		{"as long as it is tracked", hour, time.Hour, ""},
		{"a quick keepalive", func(l *tune.IdleLimits) { l.Keepalive = 10 * time.Minute }, stockTCP, ""},
		{"no connection tracking", func(l *tune.IdleLimits) { l.Established = 0 }, stockTCP, keepalive},
		{"nothing is told", func(l *tune.IdleLimits) { *l = tune.IdleLimits{} }, stockTCP, keepalive},
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
		n.sysctl(t, key, value)
	}
}

func TestIdleLimitsAreRead(t *testing.T) {
	n := newNode(t)
	n.idle(t)
	got, err := n.tuner(t).IdleLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(limits(nil), got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	n.remove(t, sysctlFile(netfilter+"tcp_timeout_established"))
	if got, err = n.tuner(t).IdleLimits(t.Context()); err != nil || got.Established != 0 {
		t.Errorf("established %s, error %v for a key that is not there", got.Established, err)
	}
}

func TestIdleCheck(t *testing.T) {
	const key = "net.ipv4.tcp_keepalive_time"
	for _, tt := range []struct {
		name   string
		change func(*testing.T, node)
		tcp    time.Duration
		err    error
		state  tune.State
		detail string
	}{
		{name: "as the kernel begins", tcp: stockTCP, state: tune.Warn, detail: "2h0m0s"},
		{name: "long enough", tcp: 2 * time.Hour, state: tune.OK},
		{name: "nobody knows", err: errors.New("no answer"), state: tune.Failed, detail: "no answer"},
		{name: "no IPVS", err: tune.Lacking(errors.New("no family")), state: tune.Lacks, detail: "no family"},
		{name: "a key that cannot be read", change: func(t *testing.T, n node) { n.remove(t, sysctlFile(key)); n.blocked(t, key) },
			tcp: stockTCP, state: tune.Failed, detail: "read sysctl " + key},
		{name: "a key without a number", change: func(t *testing.T, n node) { n.sysctl(t, key, "-1") }, tcp: stockTCP, state: tune.Failed, detail: "read sysctl " + key},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.idle(t)
			if tt.change != nil {
				tt.change(t, n)
			}
			check := n.tuner(t).IdleCheck(func(_ context.Context, l tune.IdleLimits) (time.Duration, error) {
				if l != limits(nil) {
					t.Errorf("asked with %+v", l)
				}
				return tt.tcp, tt.err
			})
			v := tune.RunChecks(t.Context(), []tune.Check{check})[0]
			if v.State != tt.state || !strings.Contains(v.Detail, tt.detail) || (v.Fix == "") != (v.State == tune.OK) {
				t.Errorf("%+v, want %s and %q", v, tt.state, tt.detail)
			}
		})
	}
}
