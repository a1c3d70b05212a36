package daemon

import (
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// TestUnlimitedExternalIPsAreWarnedOf: once when the first Service has one, and again after there were none or a
// setting limited them.
func TestUnlimitedExternalIPsAreWarnedOf(t *testing.T) {
	all := config.Config{Exposure: config.Exposure{AllowExternalIPs: true}}
	some := config.Config{Exposure: config.Exposure{AllowExternalIPs: true, ExternalIPCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
	core, logs := observer.New(zap.WarnLevel)
	now := all
	warn := warnExternalIPs(zap.New(core), func() config.Config { return now })
	for i, step := range []struct {
		config   config.Config
		services int
		warnings int
	}{
		{all, 0, 0}, {all, 3, 1}, {all, 4, 1}, {some, 4, 1}, {all, 4, 2}, {all, 0, 2}, {all, 1, 3}, {config.Config{}, 1, 3},
	} {
		now = step.config
		if warn(step.services); logs.Len() != step.warnings {
			t.Errorf("step %d: %d warnings, want %d", i, logs.Len(), step.warnings)
		}
	}
}
