package daemon

import (
	"os"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/version"
)

// about returns the release of the program and of the kernel, and the default scheduler in force.
func (d *daemon) about() agent.About {
	store := d.kernel.ruleStore
	return agent.About{
		Version: version.String(), Kernel: kernelRelease(), Scheduler: d.live.now().Scheduler.String(),
		Rules: string(store.active), RulesReason: store.reason(),
	}
}

// kernelRelease returns what uname -r prints, and nothing on a system without it.
func kernelRelease() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
