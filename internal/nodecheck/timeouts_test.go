package nodecheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
)

// TestCheckIdleTimes: the check judges the timeouts that will be in force. There is none without IPVS.
func TestCheckIdleTimes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		asked  config.Timeouts
		broken error
		states string
	}{
		{"as the kernel begins", config.Timeouts{}, nil, "ipvs idle times: warning\n"},
		{"a long time asked for", config.Timeouts{TCP: 2 * time.Hour}, nil, "ipvs idle times: ok\n"},
		{"the profile asked for", config.Timeouts{Recommended: true}, nil, "ipvs idle times: ok\n"},
		{"no IPVS", config.Timeouts{}, fmt.Errorf("open: %w", vserver.ErrUnsupported), ""},
		{"no rights", config.Timeouts{}, os.ErrPermission, "ipvs idle times: failed\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for key, value := range map[string]string{
				"netfilter/nf_conntrack_tcp_timeout_established": "86400", "netfilter/nf_conntrack_tcp_timeout_fin_wait": "120",
				"netfilter/nf_conntrack_udp_timeout_stream": "120",
				"ipv4/tcp_keepalive_time":                   "7200", "ipv4/tcp_keepalive_intvl": "75", "ipv4/tcp_keepalive_probes": "9",
			} {
				name := filepath.Join(root, "proc/sys/net", key)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(value+"\n"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			files := procfs.Files{Root: root}
			n := host.New(files, t.TempDir(), sysctl.New(zap.NewNop(), sysctl.Options{Files: files, RunDir: t.TempDir()}), nil)
			checks := timeoutChecks(n, tt.asked, func() (timeoutsHandle, error) { return vservertest.NewFake(), tt.broken })
			if diff := cmp.Diff(tt.states, states(t, checks)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}
