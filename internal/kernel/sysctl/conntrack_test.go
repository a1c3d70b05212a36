package sysctl_test

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
)

const (
	netfilter = "net.netfilter.nf_conntrack_"
	hashSize  = "sys/module/nf_conntrack/parameters/hashsize"
)

func TestConntrackMax(t *testing.T) {
	for name, tc := range map[string]struct {
		perCore, min, cores, want int
	}{
		"kube-proxy's defaults, a small node":    {32768, 131072, 2, 131072},
		"kube-proxy's defaults, four cores":      {32768, 131072, 4, 131072},
		"kube-proxy's defaults, five cores":      {32768, 131072, 5, 163840},
		"kube-proxy's defaults, at the cap":      {32768, 131072, 32, 1048576},
		"kube-proxy's defaults, above the cap":   {32768, 131072, 33, 1048576},
		"kube-proxy's defaults, a large machine": {32768, 131072, 512, 1048576},
		"left alone, and so is the least":        {0, 131072, 4, 0},
		"a negative number is none":              {-1, 131072, 4, 0},
		"no least":                               {10000, 0, 3, 30000},
		"a negative least":                       {10000, -5, 3, 30000},
		"a least above the cap, few cores":       {32768, 2000000, 4, 2000000},
		"a least above the cap, many cores":      {32768, 2000000, 64, 1048576},
		"as many as fit":                         {math.MaxInt32, 0, 4096, 1048576},
	} {
		t.Run(name, func(t *testing.T) {
			opts := sysctl.ConntrackOptions{MaxPerCore: tc.perCore, Min: tc.min}
			if got := opts.Max(tc.cores); got != tc.want {
				t.Errorf("Max(%d) = %d, want %d", tc.cores, got, tc.want)
			}
		})
	}
}

// conntrack makes a node of so many cores with the kernel's own settings.
func (n node) conntrack(t *testing.T, cores int) {
	t.Helper()
	n.cpus(t, fmt.Sprintf("0-%d", cores-1))
	for name, value := range map[string]string{"max": "65536", "tcp_timeout_established": "432000",
		"tcp_timeout_close_wait": "60", "tcp_be_liberal": "0", "udp_timeout": "30", "udp_timeout_stream": "120"} {
		n.Sysctl(t, netfilter+name, value)
	}
	n.File(t, hashSize, "16384")
}

// cpus lists the CPUs that are online.
func (n node) cpus(t *testing.T, list string) {
	t.Helper()
	n.File(t, "sys/devices/system/cpu/online", list+"\n")
}

// kubeProxy is what kube-proxy sets by default.
var kubeProxy = sysctl.ConntrackOptions{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}

func TestApplyConntrack(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*testing.T, node)
		opts    sysctl.ConntrackOptions
		want    []string
	}{
		"nothing asked for": {},
		"kube-proxy's defaults": {
			opts: kubeProxy,
			want: []string{
				netfilter + "max=131072: changed (it was 65536)",
				"nf_conntrack hashsize=32768: changed (it was 16384)",
				netfilter + "tcp_timeout_established=86400: changed (it was 432000)",
				netfilter + "tcp_timeout_close_wait=3600: changed (it was 60)",
			},
		},
		"all of it": {
			opts: sysctl.ConntrackOptions{MaxPerCore: 50000, TCPEstablished: time.Hour, TCPCloseWait: time.Minute,
				UDP: 500 * time.Millisecond, UDPStream: 1500 * time.Millisecond, TCPBeLiberal: true},
			want: []string{
				netfilter + "max=200000: changed (it was 65536)",
				"nf_conntrack hashsize=50000: changed (it was 16384)",
				netfilter + "tcp_timeout_established=3600: changed (it was 432000)",
				netfilter + "tcp_timeout_close_wait=60: right",
				netfilter + "tcp_be_liberal=1: changed (it was 0)",
				netfilter + "udp_timeout=1: changed (it was 30)",
				netfilter + "udp_timeout_stream=1: changed (it was 120)",
			},
		},
		"the maximum left alone": {
			opts: sysctl.ConntrackOptions{Min: 500000, UDP: time.Minute},
			want: []string{netfilter + "udp_timeout=60: changed (it was 30)"},
		},
		"negative timeouts": {
			opts: sysctl.ConntrackOptions{TCPEstablished: -1, TCPCloseWait: -time.Hour, UDP: -1, UDPStream: -1},
		},
		"what is not to be liberal stays as it is": {
			prepare: func(t *testing.T, n node) { n.Sysctl(t, netfilter+"tcp_be_liberal", "1") },
			opts:    sysctl.ConntrackOptions{UDP: 30 * time.Second},
			want:    []string{netfilter + "udp_timeout=30: right"},
		},
		"a larger hash table": {
			prepare: func(t *testing.T, n node) { n.File(t, hashSize, "262144") },
			opts:    sysctl.ConntrackOptions{MaxPerCore: 32768},
			want:    []string{netfilter + "max=131072: changed (it was 65536)", "nf_conntrack hashsize=32768: right"},
		},
		"a larger maximum is never lowered": {
			prepare: func(t *testing.T, n node) { n.Sysctl(t, netfilter+"max", "2000000") },
			opts:    sysctl.ConntrackOptions{MaxPerCore: 32768},
			want:    []string{netfilter + "max=2000000: right", "nf_conntrack hashsize=32768: changed (it was 16384)"},
		},
		"only the hash table is small": {
			prepare: func(t *testing.T, n node) { n.Sysctl(t, netfilter+"max", "131072") },
			opts:    sysctl.ConntrackOptions{MaxPerCore: 32768},
			want:    []string{netfilter + "max=131072: right", "nf_conntrack hashsize=32768: changed (it was 16384)"},
		},
		"no hash table in sight": {
			prepare: func(t *testing.T, n node) { n.Remove(t, hashSize) },
			opts:    sysctl.ConntrackOptions{MaxPerCore: 32768},
			want:    []string{netfilter + "max=131072: changed (it was 65536)", "nf_conntrack hashsize=32768: missing"},
		},
		"a maximum that the kernel does not take": {
			prepare: func(t *testing.T, n node) { n.Ignore(t, netfilter+"max") },
			opts:    sysctl.ConntrackOptions{MaxPerCore: 32768, UDP: time.Minute},
			want: []string{
				netfilter + `max=131072: refused: set sysctl net.netfilter.nf_conntrack_max from "" to "131072": the kernel keeps ""`,
				netfilter + "udp_timeout=60: changed (it was 30)",
			},
		},
		"a hash table that the kernel does not grow": {
			prepare: func(t *testing.T, n node) { n.IgnoreFile(t, hashSize) },
			opts:    sysctl.ConntrackOptions{MaxPerCore: 32768},
			want: []string{netfilter + "max=131072: changed (it was 65536)",
				`nf_conntrack hashsize=32768: refused: set nf_conntrack hashsize from "" to 32768: the kernel keeps ""`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.conntrack(t, 4)
			if tc.prepare != nil {
				tc.prepare(t, n)
			}
			results := n.handle(t).ApplyConntrack(t.Context(), tc.opts)
			if diff := cmp.Diff(tc.want, texts(results)); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			for _, r := range results {
				if r.Why == "" || r.Policy != sysctl.Wanted {
					t.Errorf("%s is %s because of %q, want wanted and a reason", r, r.Policy, r.Why)
				}
			}
		})
	}
}

func TestApplyConntrackWritesTheNode(t *testing.T) {
	n := newNode(t)
	n.conntrack(t, 4)
	n.handle(t).ApplyConntrack(t.Context(), kubeProxy)
	n.WantFile(t, hashSize, "32768")
	n.WantSysctl(t, netfilter+"max", "131072")
	n.WantSysctl(t, netfilter+"tcp_timeout_established", "86400")
	n.WantSysctl(t, netfilter+"udp_timeout", "30")
	for _, r := range n.handle(t).ApplyConntrack(t.Context(), kubeProxy) {
		if r.Outcome != sysctl.Right {
			t.Errorf("second time: %s, want right", r)
		}
	}
}

func TestConntrackNotLoaded(t *testing.T) {
	n := newNode(t)
	n.cpus(t, "0")
	results := n.handle(t).ApplyConntrack(t.Context(), kubeProxy)
	want := []string{netfilter + "max=131072: missing", netfilter + "tcp_timeout_established=86400: missing",
		netfilter + "tcp_timeout_close_wait=3600: missing"}
	if diff := cmp.Diff(want, texts(results)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if err := sysctl.Failure(results, sysctl.Wanted); err != nil {
		t.Errorf("Failure = %v, want none", err)
	}
}

// Cleanup gives the times back, and leaves what others may need: forwarding, the maximum and the hash table.
func TestRestoreConntrack(t *testing.T) {
	n := newNode(t)
	n.conntrack(t, 4)
	n.Sysctl(t, key, "0")
	n.handle(t).Apply(t.Context(), forward(sysctl.Required))
	n.handle(t).ApplyConntrack(t.Context(), kubeProxy)
	want := []string{
		leftForward,
		netfilter + "max=131072: left (it was 65536 before kube-ipvs); connections may need the larger table",
		netfilter + "tcp_timeout_close_wait=60: restored (it was 3600)",
		netfilter + "tcp_timeout_established=432000: restored (it was 86400)",
	}
	if diff := cmp.Diff(want, texts(n.handle(t).Restore(t.Context()))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	n.WantSysctl(t, netfilter+"max", "131072")
	n.WantFile(t, hashSize, "32768")
	wantFiles(t, n.Run)
}

func TestCores(t *testing.T) {
	here := runtime.NumCPU()
	for name, tc := range map[string]struct {
		online string
		want   int
	}{
		"one CPU":                  {"0", 1},
		"a range":                  {"0-11", 12},
		"CPUs that are offline":    {"0-3,8,10-11", 7},
		"no list":                  {"", here},
		"an empty list":            {"\n", here},
		"a range that is reversed": {"3-0", here},
		"not a list":               {"0-3,all", here},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tc.online != "" {
				n.cpus(t, tc.online)
			}
			n.Sysctl(t, netfilter+"max", "1")
			n.handle(t).ApplyConntrack(t.Context(), sysctl.ConntrackOptions{MaxPerCore: 1000})
			n.WantSysctl(t, netfilter+"max", strconv.Itoa(1000*tc.want))
		})
	}
}
