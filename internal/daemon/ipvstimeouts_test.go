package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

// idleFake is a kernel's idle times that count how often they are written. A deaf one
// takes a write and keeps nothing of it.
type idleFake struct {
	*vservertest.Fake
	writes int
	deaf   bool
}

// SetTimeouts implements timeoutsHandle.
func (f *idleFake) SetTimeouts(ctx context.Context, t vserver.Timeouts) error {
	f.writes++
	if f.deaf {
		return nil
	}
	return f.Fake.SetTimeouts(ctx, t)
}

// idleBench is a keeper on a node as its kernel begins.
type idleBench struct {
	*testing.T
	*timeoutEnforcer
	fake *idleFake
	root string
	logs *observer.ObservedLogs
}

func newIdleBench(t *testing.T) *idleBench {
	core, logs := observer.New(zap.InfoLevel)
	b := &idleBench{T: t, fake: &idleFake{Fake: vservertest.NewFake()}, root: t.TempDir(), logs: logs}
	for key, value := range map[string]string{
		"netfilter/nf_conntrack_tcp_timeout_established": "86400", "netfilter/nf_conntrack_tcp_timeout_fin_wait": "120",
		"netfilter/nf_conntrack_udp_timeout_stream": "120",
		"ipv4/tcp_keepalive_time":                   "7200", "ipv4/tcp_keepalive_intvl": "75", "ipv4/tcp_keepalive_probes": "9",
	} {
		b.sysctl(key, value)
	}
	b.timeoutEnforcer = newTimeoutEnforcer(zap.New(core), b.fake, sysctl.New(zap.NewNop(), sysctl.Options{Files: procfs.Files{Root: b.root}, RunDir: t.TempDir()}))
	return b
}

func (b *idleBench) sysctl(key, value string) {
	b.Helper()
	name := filepath.Join(b.root, "proc/sys/net", key)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(value+"\n"), 0o600)); err != nil {
		b.Fatal(err)
	}
}

// warnings are the lines of the log that warn, since it was asked before.
func (b *idleBench) warnings() (out []string) {
	for _, e := range b.logs.TakeAll() {
		if e.Level == zap.WarnLevel {
			out = append(out, fmt.Sprint(e.Message, ": ", e.ContextMap()["error"], "; ", e.ContextMap()["remedy"]))
		}
	}
	return out
}

const (
	hours  = 2*time.Hour + 9*75*time.Second + 5*time.Minute // the recommended times of this node
	silent = "the IPVS timeout of TCP connections is too short: IPVS drops an idle TCP connection after "
	remedy = "; " + sysctl.IdleFix
)

func TestIdleTimesAreKept(t *testing.T) {
	stock := telemetry.IdleTimes{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute}
	for _, tt := range []struct {
		name   string
		asked  config.Timeouts
		want   telemetry.IdleTimes
		writes int
		warns  string
	}{
		{"nothing asked for", config.Timeouts{}, stock, 0, silent + "15m0s"},
		{"what is there already", config.Timeouts{UDP: 5 * time.Minute}, stock, 0, silent + "15m0s"},
		{"a time that is short", config.Timeouts{TCP: time.Hour}, telemetry.IdleTimes{TCP: time.Hour, TCPFin: stock.TCPFin, UDP: stock.UDP}, 1, silent + "1h0m0s"},
		{"a long one", config.Timeouts{TCP: 3 * time.Hour, UDP: 1500 * time.Millisecond}, telemetry.IdleTimes{TCP: 3 * time.Hour, TCPFin: stock.TCPFin, UDP: 2 * time.Second}, 1, ""},
		{"the profile", config.Timeouts{Recommended: true}, telemetry.IdleTimes{TCP: hours, TCPFin: 2 * time.Minute, UDP: 2 * time.Minute}, 1, ""},
		{"the profile, with a time beside it", config.Timeouts{Recommended: true, UDP: time.Minute}, telemetry.IdleTimes{TCP: hours, TCPFin: 2 * time.Minute, UDP: time.Minute}, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newIdleBench(t)
			for range 3 { // a start, and audits
				if err := b.keep(t.Context(), tt.asked); err != nil {
					t.Fatal(err)
				}
			}
			now, known := b.inForce()
			if diff := cmp.Diff(tt.want, now); diff != "" || !known {
				t.Errorf("in force (-want +got), known %t:\n%s", known, diff)
			}
			warned := b.warnings()
			if tt.warns == "" && warned != nil || tt.warns != "" && (len(warned) != 1 || !strings.HasPrefix(warned[0], tt.warns) || !strings.HasSuffix(warned[0], remedy)) {
				t.Errorf("warnings %q, want one of %q", warned, tt.warns)
			}
			if b.fake.writes != tt.writes {
				t.Errorf("written %d times, want %d", b.fake.writes, tt.writes)
			}
		})
	}
}

// Timeouts that another program sets are set back, if they are configured; the recommended profile
// follows the sysctls of the node.
func TestIdleTimesComeBack(t *testing.T) {
	b := newIdleBench(t)
	asked := config.Timeouts{Recommended: true}
	steps := []struct {
		name   string
		change func()
		want   telemetry.IdleTimes
	}{
		{"start", func() {}, telemetry.IdleTimes{TCP: hours, TCPFin: 2 * time.Minute, UDP: 2 * time.Minute}},
		{"ipvsadm --set 900 0 0", func() { _ = b.fake.Fake.SetTimeouts(t.Context(), vserver.Timeouts{TCP: 15 * time.Minute}) },
			telemetry.IdleTimes{TCP: hours, TCPFin: 2 * time.Minute, UDP: 2 * time.Minute}},
		{"connection tracking is set to less", func() { b.sysctl("netfilter/nf_conntrack_tcp_timeout_established", "3600") },
			telemetry.IdleTimes{TCP: time.Hour, TCPFin: 2 * time.Minute, UDP: 2 * time.Minute}},
	}
	for i, step := range steps {
		step.change()
		if err := b.keep(t.Context(), asked); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if now, _ := b.inForce(); now != step.want || b.fake.writes != i+1 {
			t.Errorf("%s: %+v after %d writes, want %+v", step.name, now, b.fake.writes, step.want)
		}
	}
	if warned := b.warnings(); warned != nil {
		t.Errorf("warnings %q", warned)
	}
}

// Timeouts that cannot be read are an error if some are configured, and otherwise one warning.
func TestIdleTimesThatCannotBeKept(t *testing.T) {
	hour := config.Timeouts{TCP: time.Hour}
	for _, tt := range []struct {
		name   string
		asked  config.Timeouts
		change func(*idleBench)
		fails  string
		warns  []string
	}{
		{"the kernel does not answer", hour, func(b *idleBench) { b.fake.FailAlways(errors.New("no answer")) }, "no answer", nil},
		{"it does not, and no setting needs it", config.Timeouts{}, func(b *idleBench) { b.fake.FailAlways(errors.New("no answer")) }, "",
			[]string{"cannot read the IPVS connection timeouts: get ipvs timeouts: no answer; <nil>"}},
		{"it keeps what it has", hour, func(b *idleBench) { b.fake.deaf = true }, "the kernel has", nil},
		{"a node that cannot be read", config.Timeouts{Recommended: true}, func(b *idleBench) { b.sysctl("ipv4/tcp_keepalive_time", "soon") }, "recommended IPVS timeouts: read sysctl", nil},
		{"such a node, and a plain time", config.Timeouts{TCP: 3 * time.Hour}, func(b *idleBench) { b.sysctl("ipv4/tcp_keepalive_time", "soon") }, "",
			[]string{`cannot read the connection timeouts of this node: read sysctl net.ipv4.tcp_keepalive_time: strconv.ParseUint: parsing "soon": invalid syntax; <nil>`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newIdleBench(t)
			tt.change(b)
			for range 2 {
				err := b.keep(t.Context(), tt.asked)
				if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("error %v, want %q", err, tt.fails)
				}
			}
			if diff := cmp.Diff(tt.warns, b.warnings()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// A time that was known is not shown any longer than it is.
func TestIdleTimesAreForgotten(t *testing.T) {
	b := newIdleBench(t)
	for _, known := range []bool{true, false} {
		if err := b.keep(t.Context(), config.Timeouts{}); err != nil {
			t.Fatal(err)
		}
		if _, got := b.inForce(); got != known {
			t.Errorf("known %t, want %t", got, known)
		}
		b.fake.FailAlways(errors.New("no answer"))
	}
}

// A change to 0 is logged, since the initial value of the kernel is unknown.
func TestTimesThatStayAreSaid(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to config.Timeouts
		want     []string
	}{
		{"one of them", config.Timeouts{TCP: time.Hour, UDP: time.Minute}, config.Timeouts{UDP: 2 * time.Minute}, []string{"ipvs.tcpTimeout 1h0m0s"}},
		{"the profile goes", config.Timeouts{Recommended: true}, config.Timeouts{TCP: time.Hour}, []string{"ipvs.tcpFinTimeout recommended", "ipvs.udpTimeout recommended"}},
		{"the profile comes", config.Timeouts{TCP: time.Hour}, config.Timeouts{Recommended: true}, nil},
		{"nothing", config.Timeouts{}, config.Timeouts{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			reportKept(zap.New(core), tt.from, tt.to)
			var got []string
			for _, e := range logs.All() {
				got = append(got, fmt.Sprint(e.ContextMap()["setting"], " ", e.ContextMap()["kept"]))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}
